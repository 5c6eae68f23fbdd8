"""A small tokenizer on disk, so that no peer asks a model hub; used by `peers.py`.

Byte-level BPE over generated words, the same on every machine. The mock server's word, " tok", is one token,
so that tools that tokenize what they received count what was sent.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 4000
SPECIALS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
#: Wide enough for any prompt.
CONTEXT = 1048576


def write_tokenizer(folder: Path) -> Path:
    """In the files that `transformers` loads; made once."""
    if (folder / "config.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(0)
    letters = "etaoinshrdlucmfwypvbg"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(6000)]
    text = [" ".join(chance.choices(words, k=20)) for _ in range(4000)] + [" tok" * 2000]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIALS.values()),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(text, trainer)
    assert len(tokenizer.encode(" tok" * 8).ids) == 8
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
        **SPECIALS,
    }
    model = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": tokenizer.get_vocab_size(),
        "max_position_embeddings": CONTEXT,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "special_tokens_map.json").write_text(json.dumps(SPECIALS))
    (folder / "config.json").write_text(json.dumps(model))
    return folder

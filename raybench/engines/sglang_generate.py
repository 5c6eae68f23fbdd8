"""SGLang's native route `/generate`: the request body and what the answer's messages mean.

Runs in the load worker. Messages are `{"text", "output_ids", "meta_info"}`. Depending on version and
server flags, `text` and `output_ids` of a stream event hold everything so far or only what is new, and
not always both alike (case O-S2); `meta_info.completion_tokens` is cumulative in all of them, so it alone
counts tokens. The first token is the first event with completion_tokens >= 1, whatever its text.
"""

from __future__ import annotations

from raybench.engines.bodies import PROMPT, RID, make_template
from raybench.engines.contract import Answer, BodyTemplate, RequestShape
from raybench.engines.decoder import add_chunk, engine_error_class, fail, take_cached_tiers
from raybench.engines.loose_json import JsonObject, float_of, int_of, object_of, str_of


def generate_template(shape: RequestShape) -> BodyTemplate:
    """Token ids and sampling written out, so that no server default decides what is measured."""
    sampling = {
        "max_new_tokens": shape.output_tokens,
        "temperature": shape.temperature,
        "top_p": 1.0,
        "ignore_eos": shape.ignore_eos,
    }
    prompt: dict[str, object] = {"input_ids": [PROMPT]} if shape.prompt == "corpus" else {"text": PROMPT}
    body = {"rid": RID, **prompt, "sampling_params": sampling, "stream": shape.stream}
    return make_template("/generate", body, shape.extra_body)


class GenerateReader:
    """Reads the messages of one `/generate` answer."""

    def __init__(self) -> None:
        self.answer = Answer()
        self._text = StreamedText()
        self._meta: dict[str, object] = {}

    def event(self, message: JsonObject, stamp_ns: int) -> None:
        meta = object_of(message.get("meta_info"))
        self._meta.update(meta)
        text = str_of(message.get("text"))
        ids = message.get("output_ids")
        seen = self.answer.output_tokens or 0
        now = int_of(meta.get("completion_tokens"))
        if now is not None:
            if now > seen > 0 and isinstance(ids, list) and len(ids) == now:
                self._text.cumulative = True
            if now > seen:
                add_chunk(self.answer, stamp_ns, now - seen)
            # An abort may come with a count of 0; tokens that were seen stay seen.
            self.answer.output_tokens = max(now, seen)
        elif text or ids:
            add_chunk(self.answer, stamp_ns, None)
        if text is not None:
            self._text.add(text)
        take_finish(self.answer, meta.get("finish_reason"))

    def body(self, message: JsonObject) -> None:
        self._meta.update(object_of(message.get("meta_info")))
        self.answer.output_tokens = int_of(self._meta.get("completion_tokens"))
        self._text.add(str_of(message.get("text")) or "")
        take_finish(self.answer, self._meta.get("finish_reason"))

    @property
    def counted(self) -> int | None:
        return self.answer.output_tokens

    def skipped(self, count: int | None) -> None:
        self.answer.output_tokens = count

    def end(self) -> None:
        self.answer.text = self._text.text
        self.answer.text_complete |= self._text.cumulative is True
        take_meta(self.answer, self._meta)
        if self.answer.engine_ttft_s is None and self.answer.first_event_ns is not None:
            self.answer.engine_ttft_s = _until_first_answer_s(self._meta)


def take_finish(answer: Answer, reason: object) -> None:
    """`finish_reason` as null, a string, or an object; an abort is a failure with HTTP 200."""
    details = object_of(reason)
    kind = str_of(reason) or str_of(details.get("type"))
    if kind is None:
        return
    answer.finish_reason = kind
    if kind == "abort":
        message = str_of(details.get("message")) or "aborted by the engine"
        fail(answer, engine_error_class(details.get("status_code")), message)


def take_meta(answer: Answer, meta: JsonObject) -> None:
    """What the server says of one request, under the names of all versions."""
    answer.input_tokens = int_of(meta.get("prompt_tokens"))
    answer.cached_tokens = int_of(meta.get("cached_tokens"))
    take_cached_tiers(answer, meta.get("cached_tokens_details"))
    if answer.cached_tokens == 0 and "cached_tokens_details" in meta:
        # The details are null when nothing was cached, which leaves nothing for either tier.
        answer.cached_tokens_device = answer.cached_tokens_device or 0
        answer.cached_tokens_host = answer.cached_tokens_host or 0
    retractions = int_of(meta.get("num_retractions"))
    answer.retractions = int_of(meta.get("total_retractions")) if retractions is None else retractions
    answer.dp_rank = int_of(meta.get("dp_rank"))
    answer.accept_length = _accept_length(meta)
    answer.engine_queue_s = float_of(meta.get("queue_time"))
    answer.engine_e2e_s = float_of(meta.get("e2e_latency"))
    answer.engine_ttft_s = float_of(meta.get("first_token_latency"))
    answer.response_id = str_of(meta.get("id"))
    entered, prefilled = float_of(meta.get("forward_entry_time")), float_of(meta.get("prefill_finished_time"))
    if entered is not None and prefilled is not None:
        answer.engine_prefill_s = prefilled - entered
    if answer.engine_ttft_s is not None and answer.engine_e2e_s is not None:
        answer.engine_decode_s = answer.engine_e2e_s - answer.engine_ttft_s
    answer.draft_tokens = _first_int(meta, "spec_num_proposed_drafts", "spec_draft_token_num")
    answer.accepted_tokens = _first_int(meta, "spec_num_correct_drafts", "spec_accept_token_num")
    answer.verify_rounds = int_of(meta.get("spec_verify_ct"))


def _first_int(meta: JsonObject, *names: str) -> int | None:
    return next((value for value in (int_of(meta.get(name)) for name in names) if value is not None), None)


def _accept_length(meta: JsonObject) -> float | None:
    given = float_of(meta.get("spec_accept_length"))
    if given is not None:
        return given
    # SGLang 0.5.3 gives only the number of verify steps; later ones define the length by this ratio.
    steps, tokens = int_of(meta.get("spec_verify_ct")), int_of(meta.get("completion_tokens"))
    return tokens / steps if steps and tokens is not None else None


def _until_first_answer_s(meta: JsonObject) -> float | None:
    """Of a stream, by stamps of the server's clock: request received, first event sent."""
    received = float_of(meta.get("request_received_ts"))
    answered = float_of(meta.get("response_sent_to_client_ts"))
    return None if received is None or answered is None else answered - received


class StreamedText:
    """The text of a stream whose chunks hold all text so far, or only the new part.

    `cumulative` is None until known. Chunks that keep beginning with the chunk before are cumulative;
    three growths in a row decide, so that undecided streams stay short.
    """

    __slots__ = ("_growths", "_parts", "cumulative")

    def __init__(self) -> None:
        self.cumulative: bool | None = None
        self._parts: list[str] = []
        self._growths = 0

    def add(self, chunk: str) -> None:
        if self.cumulative is None and self._parts:
            self._judge(self._parts[-1], chunk)
        if self.cumulative:
            self._parts.clear()
        self._parts.append(chunk)

    def _judge(self, before: str, chunk: str) -> None:
        if not chunk.startswith(before):
            self.cumulative = False
        elif len(chunk) > len(before) > 0:
            self._growths += 1
            if self._growths == 3:
                self.cumulative = True

    @property
    def text(self) -> str:
        """All text. An undecided stream is cumulative if its text grew, else made of equal parts."""
        if self.cumulative is None and self._growths:
            return self._parts[-1]
        return "".join(self._parts)

#!/usr/bin/env bash
# bundle.sh FOLDER: packs what rehearsal.sh carries to a GPU machine that has Python 3.12, torch 2.11 (CUDA 13), nvcc
# and no network: FOLDER/gpu/sglang-site.tar.xz (50 MB), FOLDER/gpu/ray-site.tar.xz (30 MB) and FOLDER/whl (6 MB).
#
# The kernel wheel is cut down to the sm90 operators (the FlashAttention-3 library in it is 340 MB packed, and only
# `--attention-backend fa3` needs it), Ray to its core. Needs pip, unzip, xz; about 500 MB are downloaded.
set -euo pipefail
folder=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder/gpu" "$folder/whl" "$work/sglang" "$work/ray"
platforms=()
for minor in 39 35 34 31 28 27 26 24 17 12 5; do platforms+=(--platform "manylinux_2_${minor}_x86_64"); done
get() {
  python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
    --abi cp312 --abi abi3 --abi none "${platforms[@]}" --platform manylinux2014_x86_64 --platform manylinux1_x86_64 -d "$@"
}
unpack() { local into=$1; shift; for wheel in "$@"; do unzip -qo "$wheel" -d "$into"; done; }

pydantic=(annotated-types==0.8.0 pydantic==2.14.4 pydantic_core==2.50.5 typing-inspection==0.4.5 jsonschema==4.26.0
  jsonschema-specifications==2025.9.1 referencing==0.37.0 rpds-py==2026.9.1)
get "$work/pydantic" "${pydantic[@]}"
get "$work/whl" sglang==0.5.17 flashinfer_python==0.6.15.post1 transformers==5.12.1 tokenizers==0.22.2 \
  apache-tvm-ffi==0.1.11 compressed-tensors==0.18.0 openai==2.6.1 dill==0.4.1 distro==1.9.0 fastapi==0.165.0 gguf==0.19.0 \
  httpcore==1.0.9 httpx==0.28.1 interegular==0.3.3 jiter==0.19.0 loguru==0.7.3 msgspec==0.23.0 opentelemetry-api==1.45.2 \
  orjson==3.13.0 partial-json-parser==0.2.1.1.post7 pybase64==1.5.1 python-multipart==0.0.34 pyzmq==27.3.0 \
  setproctitle==1.3.8 sniffio==1.3.1 starlette==1.10.0 uvicorn==0.54.0 watchfiles==1.3.0 zstandard==0.25.0
get "$work/kernel" sglang-kernel==0.4.5
unpack "$work/sglang" "$work"/whl/*.whl "$work"/pydantic/*.whl
unzip -qo "$work"/kernel/*.whl -d "$work/sglang" \
  -x '*/flash_ops*' '*/infllm_ops*' '*/sm100/*' '*/flashmla_ops*'
tar -C "$work/sglang" -c . | xz -T0 -6 > "$folder/gpu/sglang-site.tar.xz"

get "$work/raywhl" ray==2.60.0
unpack "$work/ray" "$work"/pydantic/*.whl
unzip -qo "$work"/raywhl/ray-*.whl -d "$work/ray" -x 'ray/jars/*' '*.js.map' 'ray/rllib/*' 'ray/tune/*' 'ray/train/*' \
  'ray/data/*' 'ray/serve/*' 'ray/air/*' 'ray/dashboard/client/*'
tar -C "$work/ray" -c . | xz -T0 -6 > "$folder/gpu/ray-site.tar.xz"

get "$folder/whl" typer==0.29.2 annotated-doc==0.0.7 shellingham==1.5.4 click==8.5.1 rich==15.0.0 markdown-it-py==4.3.0 \
  mdurl==0.1.2 pygments==2.21.0 orjson==3.13.0 PyYAML==6.0.4 prometheus-client==0.26.0 psutil==7.2.2 jinja2==3.1.6 \
  markupsafe==3.0.4
ls -l "$folder"/gpu "$folder"/whl

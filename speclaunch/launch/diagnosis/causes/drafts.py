"""A draft that does not go with its target."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

from speclaunch.launch.diagnosis.causes.oom import CAPTURE
from speclaunch.launch.diagnosis.interface import Cause
from speclaunch.launch.diagnosis.signature import Known, raised
from speclaunch.plan.topics.drafts import COMPARES_VOCABULARIES

_WRAPPED = rf"(?:{CAPTURE}: ?)?"
_SAME_TYPE = (
    r"(?:expected (?:mat1 and mat2|m1 and m2|mat_a and mat_b|self and mat2) to have the same dtype"
    r"|expected scalar type \w{1,20} but found \w{1,20}"
    r"|expected .{1,60} to have the same dtype"
    r"|(?:mat1 and mat2|m1 and m2) must have the same dtype)"
)

CAUSES: tuple[Known, ...] = (
    Known(
        Cause(
            name="draft-dtype-differs",
            title="target and draft compute in different data types",
            meaning="The draft reads the target's hidden states, whose type differs from its own "
            "weights. During CUDA graph capture the engine adds advice about memory, which "
            "does not apply.",
            remedy="Set {dtype} to a type that both checkpoints can be loaded in (float16 for a "
            "float16 draft).",
            memory=False,
            sources=("torch's wording",),
        ),
        (raised(_WRAPPED + _SAME_TYPE, rule="SPL401"),),
    ),
    Known(
        Cause(
            name="draft-shape-differs",
            title="the draft was trained for a target of another size",
            meaning="The target's hidden states do not match the draft's matrices; the engine does "
            "not check this.",
            remedy="Use a draft that was trained for this target: {speculative_draft_model_path}.",
            memory=False,
            sources=("torch's wording",),
        ),
        (
            raised(
                _WRAPPED + r"(?:mat1 and mat2|m1 and m2) shapes cannot be multiplied", rule="SPL409"
            ),
            raised(
                _WRAPPED + r"The size of tensor a \(\d{1,9}\) must match the size of tensor b",
                lambda f: f.within("load_weights", "llama_eagle3.py", "llama_eagle.py"),
                rule="SPL409",
            ),
            raised(r"Attempted to load weight \(", lambda failure: failure.loads > 1),
        ),
    ),
    Known(
        Cause(
            name="draft-vocabulary-differs",
            title="the draft and the target have different vocabularies",
            meaning="STANDALONE compares both vocabularies: their sizes and every token's id.",
            remedy="Use a draft of the same family with the same tokenizer, or EAGLE3, which may "
            "have a smaller vocabulary.",
            memory=False,
            versions=SpecifierSet(COMPARES_VOCABULARIES),
            sources=("speculative/standalone_worker_v2.py _validate_vocab_compatibility",),
        ),
        (
            raised(
                r"STANDALONE speculative decoding requires the draft model to share the same "
                r"vocabulary(?: as the target model, but got target "
                r"vocab_size=(?P<target_vocabulary>\d{1,9}) and "
                r"draft vocab_size=(?P<draft_vocabulary>\d{1,9}))?",
                rule="SPL411",
            ),
        ),
    ),
    Known(
        Cause(
            name="draft-missing",
            title="the target was loaded as its own draft, but cannot draft",
            meaning="Without a draft path the engine loads the target's checkpoint as the draft. "
            "Only models with a multi-token-prediction layer can draft for themselves.",
            remedy="Set a draft for this target: {speculative_draft_model_path}.",
            memory=False,
            sources=("speculative/eagle_worker.py, eagle_worker_v2.py: set_embed, hot_token_id",),
        ),
        (
            raised(r"\w{1,100} does not implement set_embed", rule="SPL404"),
            raised(r"hot_token_id not defined on \w{1,100}", rule="SPL404"),
            raised(
                r"'\w{1,100}' object has no attribute '(?:set_embed|hot_token_id|"
                r"set_embed_and_head)'",
                rule="SPL404",
            ),
        ),
    ),
    Known(
        Cause(
            name="target-without-eagle3",
            title="this release cannot capture the target's hidden states for EAGLE3",
            meaning="The target's class lacks `set_eagle3_layers_to_capture`.",
            remedy="Use a newer release, or another algorithm for this target.",
            memory=False,
            sources=("model_executor/model_runner.py",),
        ),
        (
            raised(
                r"'\w{1,100}' object has no attribute 'set_eagle3_layers_to_capture'", rule="SPL415"
            ),
        ),
    ),
    Known(
        Cause(
            name="target-without-shared-embedding",
            title="this release cannot hand the target's embedding to a draft",
            meaning="The target's class lacks `get_embed_and_head`.",
            remedy="Use NGRAM or STANDALONE for this target, or a newer release.",
            memory=False,
            sources=("speculative/eagle_worker.py, pp_draft_embedding.py",),
        ),
        (raised(r"'\w{1,100}' object has no attribute 'get_embed_and_head'", rule="SPL434"),),
    ),
    Known(
        Cause(
            name="draft-layers",
            title="an EAGLE3 draft with more than one layer",
            meaning="The engine's EAGLE3 draft classes have one layer.",
            remedy="Use a draft with one layer; a config.json copied from the target has the "
            "target's `num_hidden_layers` by mistake.",
            memory=False,
            sources=("models/llama_eagle3.py",),
        ),
        (raised(r"EAGLE3 currently only supports 1 layer", rule="SPL408"),),
    ),
    Known(
        Cause(
            name="prediction-layer-missing",
            title="the checkpoint lacks the multi-token-prediction layer",
            meaning="Its config declares the layer, but its files do not contain it: conversions "
            "and quantised copies often drop it.",
            remedy="Use a checkpoint with the layer, or set a separate draft: "
            "{speculative_draft_model_path}.",
            memory=False,
            sources=("models/*_nextn.py",),
        ),
        (
            raised(
                r"MTP speculative decoding layer \d{1,5} weights missing from checkpoint",
                rule="SPL412",
            ),
        ),
    ),
)

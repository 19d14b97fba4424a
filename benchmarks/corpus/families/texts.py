"""Text encoders, and encoders of text with another input."""

from __future__ import annotations

from typing import Any

from benchmarks.corpus.exporting import call, picture, tokens
from benchmarks.corpus.recipe import Network, published

TEXT_AXES = {0: "batch", 1: "length"}
SMALL = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}


def encoder(
    batch: int,
    length: int,
    name: str,
    vocabulary: int,
    keys: tuple[str, ...] = ("input_ids", "attention_mask"),
    outputs: tuple[str, ...] = ("last_hidden_state",),
    model: str = "",
    **values: Any,
) -> Network:
    """An encoder of transformers. If there is a mask, the end of each text is padding."""
    import torch
    import transformers as tf

    inner = getattr(tf, model or f"{name}Model")(getattr(tf, f"{name}Config")(**values))
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[:, length * 3 // 4 :] = 0
    inputs = {
        "input_ids": tokens(vocabulary, batch, length),
        "attention_mask": mask,
        "token_type_ids": torch.zeros(batch, length, dtype=torch.int64),
    }
    return Network(
        call(inner, keys, outputs), tuple(inputs[key] for key in keys), keys, (TEXT_AXES,) * len(keys)
    )


TEXT = {"batch": 2, "length": 128}
BERT_KEYS = ("input_ids", "attention_mask", "token_type_ids")


@published("bert/bert-base-128", "transformers", dims=TEXT, dtypes=("bfloat16", "int8"))
def _bert(batch: int, length: int = 128) -> Network:
    outputs = ("last_hidden_state", "pooler_output")
    return encoder(batch, length, "Bert", 30522, BERT_KEYS, outputs)


@published("bert/minilm-l6-256", "transformers", dims={"batch": 2, "length": 100})
def _minilm(batch: int, length: int = 256) -> Network:
    return encoder(batch, length, "Bert", 30522, **SMALL)


@published("distilbert/distilbert-128", "transformers", dims=TEXT)
def _distilbert(batch: int, length: int = 128) -> Network:
    values = {"num_labels": 2, "model": "DistilBertForSequenceClassification", "outputs": ("logits",)}
    return encoder(batch, length, "DistilBert", 30522, **values)


@published("roberta/roberta-base-128", "transformers", batches=(1,), dims=TEXT)
def _roberta(batch: int, length: int = 128) -> Network:
    values = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}
    return encoder(batch, length, "Roberta", 50265, **values)


@published("electra/electra-small-128", "transformers")
def _electra(batch: int, length: int = 128) -> Network:
    return encoder(batch, length, "Electra", 30522)


@published("albert/albert-base-128", "transformers", batches=(1,))
def _albert(batch: int, length: int = 128) -> Network:
    values = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
    return encoder(batch, length, "Albert", 30000, **values)


@published("mobilebert/mobilebert-128", "transformers", batches=(1,))
def _mobilebert(batch: int, length: int = 128) -> Network:
    return encoder(batch, length, "MobileBert", 30522)


@published("mpnet/mpnet-base-128", "transformers", batches=(1,))
def _mpnet(batch: int, length: int = 128) -> Network:
    return encoder(batch, length, "MPNet", 30527)


@published("deberta/deberta-v3-small-128", "transformers", batches=(1,))
def _deberta(batch: int, length: int = 128) -> Network:
    values = {
        "num_hidden_layers": 6, "vocab_size": 32000, "relative_attention": True, "position_buckets": 256,
        "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False, "type_vocab_size": 0,
    }  # fmt: skip
    return encoder(batch, length, "DebertaV2", 32000, **values)


@published("modernbert/modernbert-base-256", "transformers", batches=(1,), dims={"batch": 2, "length": 200})
def _modernbert(batch: int, length: int = 256) -> Network:
    return encoder(batch, length, "ModernBert", 50000, vocab_size=50368, num_hidden_layers=12)


@published("esm/esm2-35m-256", "transformers", batches=(1,))
def _esm(batch: int, length: int = 256) -> Network:
    """A language model of proteins, with rotary embeddings."""
    values = {
        "vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1, "hidden_size": 480, "num_hidden_layers": 12,
        "num_attention_heads": 20, "intermediate_size": 1920, "position_embedding_type": "rotary",
        "emb_layer_norm_before": False, "token_dropout": False,
    }  # fmt: skip
    return encoder(batch, length, "Esm", 30, **values)


@published("layoutlm/layoutlm-base-128", "transformers", batches=(1,))
def _layoutlm(batch: int, length: int = 128) -> Network:
    import torch
    import transformers as tf

    corner = torch.randint(0, 500, (batch, length, 2))
    places = torch.cat([corner, corner + torch.randint(1, 400, (batch, length, 2))], -1)
    keys = ("input_ids", "bbox", "attention_mask")
    mask = torch.ones(batch, length, dtype=torch.int64)
    inner = call(tf.LayoutLMModel(tf.LayoutLMConfig()), keys, ["last_hidden_state", "pooler_output"])
    return Network(inner, (tokens(30522, batch, length), places, mask), keys)


@published("clip/clip-vit-b32", "transformers", batches=(1,))
def _clip(batch: int) -> Network:
    """One image and two texts."""
    import torch
    import transformers as tf

    keys = ("input_ids", "pixel_values", "attention_mask")
    text = tokens(49405, 2, 77)
    text[:, -1] = 49407  # the end of the text, whose index the model searches
    args = (text, picture(batch, 3, 224, 224), torch.ones(2, 77, dtype=torch.int64))
    outputs = ["logits_per_image", "text_embeds", "image_embeds"]
    return Network(call(tf.CLIPModel(tf.CLIPConfig()), keys, outputs), args, keys)


@published("clip/clip-image-b32", "transformers", dims={"batch": 2}, dtypes=("bfloat16",))
def _clip_image(batch: int) -> Network:
    import transformers as tf

    config = tf.CLIPVisionConfig(projection_dim=512)
    inner = call(tf.CLIPVisionModelWithProjection(config), ["pixel_values"], ["image_embeds"])
    return Network(inner, (picture(batch, 3, 224, 224),), ("pixel_values",))


@published("clip/siglip-image-b16", "transformers", batches=(1,))
def _siglip(batch: int) -> Network:
    import transformers as tf

    outputs = ["last_hidden_state", "pooler_output"]
    inner = call(tf.SiglipVisionModel(tf.SiglipVisionConfig()), ["pixel_values"], outputs)
    return Network(inner, (picture(batch, 3, 224, 224),), ("pixel_values",))

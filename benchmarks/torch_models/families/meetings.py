"""Networks of transformers for images with texts."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.torch_models.making import SMALL, VIT, encoder, transformer
from benchmarks.torch_models.recipe import Inputs, Sizes, add, images, words

TEXT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "vocab_size": 99, "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


def both(side: int = 32, length: int = 8, *, mask: bool = True) -> Inputs:
    """Images and texts of the same batch."""

    def draw(sizes: Sizes, random: Any) -> dict[str, Any]:
        import torch

        batch = sizes["batch"]
        made = {
            "input_ids": torch.randint(3, 99, (batch, length), generator=random),
            "pixel_values": torch.randn(batch, 3, side, side, generator=random),
        }
        made["input_ids"][:, -1] = 2
        return {**made, **({"attention_mask": torch.ones_like(made["input_ids"])} if mask else {})}

    names = ("input_ids", "pixel_values", *(("attention_mask",) if mask else ()))
    return Inputs(draw, {name: {0: "batch"} for name in names}, {"batch": 2}, ({"batch": 5},))


def twins(
    name: str,
    model: str,
    config: str,
    inputs: Inputs | None = None,
    *,
    text: Any = TEXT,
    sight: Any = VIT,
    **given: Any,
) -> None:
    """Register a network with a tower for texts and one for images."""
    encoder(name, model, config, inputs or both(), base={}, text_config=text, vision_config=sight, **given)


twins("clip", "CLIPModel", "CLIP", projection_dim=16)
encoder("clip-text", "CLIPTextModel", "CLIPText", words(fixed_length=True), base=TEXT)
encoder("clip-vision", "CLIPVisionModel", "CLIPVision", images(), base=VIT)
twins("siglip", "SiglipModel", "Siglip", both(mask=False))
twins("blip", "BlipModel", "Blip", projection_dim=16, image_text_hidden_size=16)
twins(
    "altclip",
    "AltCLIPModel",
    "AltCLIP",
    text={**SMALL, "project_dim": 16, "pad_token_id": 1},
    projection_dim=16,
)
twins("chineseclip", "ChineseCLIPModel", "ChineseCLIP", text=SMALL, projection_dim=16)
twins("clipseg", "CLIPSegForImageSegmentation", "CLIPSeg", projection_dim=16, reduce_dim=8,
      extract_layers=[0, 1], decoder_num_attention_heads=2, decoder_intermediate_size=16)  # fmt: skip
twins("owlvit", "OwlViTModel", "OwlViT", projection_dim=16)
encoder("vilt", "ViltModel", "Vilt", both(), base={**SMALL, **VIT}, dynamic=False)
encoder("git", "GitModel", "Git", both(), base=SMALL, vision_config=VIT, use_cache=False)


def regions() -> Inputs:
    """Texts, and features of regions of images."""

    def draw(sizes: Sizes, random: Any) -> dict[str, Any]:
        import torch

        batch = sizes["batch"]
        return {
            "input_ids": torch.randint(3, 99, (batch, 8), generator=random),
            "visual_embeds": torch.randn(batch, 4, 16, generator=random),
        }

    return Inputs(
        draw, {name: {0: "batch"} for name in ("input_ids", "visual_embeds")}, {"batch": 2}, ({"batch": 5},)
    )


def objects() -> Inputs:
    """Texts, and features and boxes of objects in images."""

    def draw(sizes: Sizes, random: Any) -> dict[str, Any]:
        import torch

        batch = sizes["batch"]
        return {
            "input_ids": torch.randint(3, 99, (batch, 8), generator=random),
            "visual_feats": torch.randn(batch, 4, 16, generator=random),
            "visual_pos": torch.rand(batch, 4, 4, generator=random),
        }

    names = ("input_ids", "visual_feats", "visual_pos")
    return Inputs(draw, {name: {0: "batch"} for name in names}, {"batch": 2}, ({"batch": 5},))


encoder("visualbert", "VisualBertModel", "VisualBert", regions(), visual_embedding_dim=16)
encoder("lxmert", "LxmertModel", "Lxmert", objects(), base={
    "vocab_size": 99, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "l_layers": 1,
    "x_layers": 1, "r_layers": 1, "visual_feat_dim": 16, "max_position_embeddings": 32})  # fmt: skip


def captioner() -> Any:
    """A ViT with a GPT-2 that attends to it."""
    import transformers as tf

    sight = tf.ViTConfig(**VIT)
    text = tf.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=2, n_positions=64, use_cache=False)
    config = tf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(sight, text)
    config.use_cache = False
    return tf.VisionEncoderDecoderModel(config)


def captions() -> Inputs:
    """Images and the beginnings of their captions."""

    def draw(sizes: Sizes, random: Any) -> dict[str, Any]:
        made = both(mask=False).draw(sizes, random)
        return {"pixel_values": made["pixel_values"], "decoder_input_ids": made["input_ids"]}

    axes = {"pixel_values": {0: "batch"}, "decoder_input_ids": {0: "batch"}}
    return Inputs(draw, axes, {"batch": 2}, ({"batch": 5},))


add("captions", captioner, captions())
add("trocr", partial(transformer, "TrOCRForCausalLM", "TrOCRConfig", vocab_size=99, d_model=32,
    decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=64, max_position_embeddings=64,
    use_cache=False), words())  # fmt: skip

"""Networks of transformers for sounds."""

from __future__ import annotations

from typing import Any

from benchmarks.torch_models.making import encoder
from benchmarks.torch_models.recipe import Inputs, Sizes, signal, values

WAVES = {
    "vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "conv_dim": [16, 16, 16], "conv_stride": [5, 2, 2], "conv_kernel": [10, 3, 3],
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2, "num_feat_extract_layers": 3,
    "apply_spec_augment": False,
}  # fmt: skip
WAVE = signal("input_values", "length", length=400, others=(640,))


def spoken(frames: int = 32, words: int = 6, bins: int = 16, *, fixed: bool = False) -> Inputs:
    """The spectrum of a sound, and the beginning of its text."""

    def draw(sizes: Sizes, random: Any) -> dict[str, Any]:
        import torch

        batch, length = sizes["batch"], sizes["words"]
        return {
            "input_features": torch.randn(batch, bins, frames, generator=random),
            "decoder_input_ids": torch.randint(3, 99, (batch, length), generator=random),
        }

    axes = {"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "words"}}
    del fixed
    return Inputs(draw, axes, {"batch": 2, "words": words}, ({"batch": 3, "words": 9},))


encoder("whisper", "WhisperForConditionalGeneration", "Whisper", spoken(), base={
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_mel_bins": 16,
    "max_source_positions": 16, "max_target_positions": 32, "pad_token_id": 0, "use_cache": False,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
})  # fmt: skip
encoder("wav2vec2", "Wav2Vec2ForCTC", "Wav2Vec2", WAVE, base=WAVES)
encoder("wav2vec2-stable", "Wav2Vec2Model", "Wav2Vec2", WAVE, base=WAVES, do_stable_layer_norm=True,
        feat_extract_norm="layer")  # fmt: skip
encoder("hubert", "HubertForCTC", "Hubert", WAVE, base=WAVES)
encoder("wavlm", "WavLMModel", "WavLM", WAVE, base=WAVES)
encoder("unispeech", "UniSpeechModel", "UniSpeech", WAVE, base=WAVES)
encoder("unispeechsat", "UniSpeechSatModel", "UniSpeechSat", WAVE, base=WAVES)
encoder("data2vecaudio", "Data2VecAudioModel", "Data2VecAudio", WAVE, base={**WAVES,
        "num_conv_pos_embeddings": 2, "conv_pos_kernel_size": 5})  # fmt: skip
encoder("sew", "SEWModel", "SEW", WAVE, base={**WAVES, "squeeze_factor": 2})
encoder("sewd", "SEWDModel", "SEWD", WAVE, base={**WAVES, "squeeze_factor": 2, "position_buckets": 8,
        "max_position_embeddings": 32})  # fmt: skip
encoder("wav2vec2conformer", "Wav2Vec2ConformerModel", "Wav2Vec2Conformer", WAVE, base={**WAVES,
        "conv_depthwise_kernel_size": 5, "position_embeddings_type": "relative"})  # fmt: skip
encoder("wav2vec2bert", "Wav2Vec2BertModel", "Wav2Vec2Bert",
        signal("input_features", "length", 16, length=24, others=(30,)), base={**WAVES,
        "feature_projection_input_dim": 16, "conv_depthwise_kernel_size": 5})  # fmt: skip
encoder("speech2text", "Speech2TextForConditionalGeneration", "Speech2Text", Inputs(
    lambda sizes, random: {**spoken().draw(sizes, random), "input_features": values(
        {"x": (32, 16)}).draw(sizes, random)["x"]}, spoken().axes, spoken().sizes, spoken().others), base={
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "input_feat_per_channel": 16, "conv_channels": 16, "max_source_positions": 64,
    "max_target_positions": 64, "use_cache": False})  # fmt: skip
encoder(
    "ast",
    "ASTModel",
    "AST",
    values({"input_values": (48, 32)}),
    base={
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "patch_size": 8,
        "frequency_stride": 8,
        "time_stride": 8,
        "max_length": 48,
        "num_mel_bins": 32,
    },
)
encoder("encodec", "EncodecModel", "Encodec", signal("input_values", 1, "length", length=320, others=(640,)),
        base={"num_filters": 4, "upsampling_ratios": [4, 2], "hidden_size": 16, "num_lstm_layers": 1,
        "codebook_size": 32, "codebook_dim": 16, "use_conv_shortcut": True})  # fmt: skip
encoder("dac", "DacModel", "Dac", values({"input_values": (1, 256)}), base={"encoder_hidden_size": 8,
        "downsampling_ratios": [4, 2], "decoder_hidden_size": 32, "n_codebooks": 2, "codebook_size": 32,
        "codebook_dim": 4, "upsampling_ratios": [2, 4]})  # fmt: skip
encoder(
    "speecht5",
    "SpeechT5HifiGan",
    "SpeechT5HifiGan",
    values({"spectrogram": (20, 8)}),
    base={
        "model_in_dim": 8,
        "upsample_initial_channel": 16,
        "upsample_rates": [2, 2],
        "upsample_kernel_sizes": [4, 4],
        "resblock_kernel_sizes": [3],
        "resblock_dilation_sizes": [[1, 3]],
    },
)
encoder("moonshine", "MoonshineModel", "Moonshine", Inputs(
    lambda sizes, random: {"input_values": values({"x": (1024,)}).draw(sizes, random)["x"],
                           "decoder_input_ids": spoken().draw(sizes, random)["decoder_input_ids"]},
    {"input_values": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "words"}}, spoken().sizes,
    spoken().others), base={"vocab_size": 99, "hidden_size": 32, "intermediate_size": 64,
    "encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 2, "encoder_num_attention_heads": 2,
    "decoder_num_attention_heads": 2, "use_cache": False, "pad_token_id": 0})  # fmt: skip

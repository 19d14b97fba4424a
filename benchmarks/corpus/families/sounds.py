"""Speech and sound: recognition, synthesis, tags, separation."""

from __future__ import annotations

from typing import Any

from benchmarks.corpus.exporting import call, tokens
from benchmarks.corpus.families.decoders import pasts, stepping
from benchmarks.corpus.recipe import Network, published


def of_sound(model: Any, key: str, outputs: tuple[str, ...], value: Any) -> Network:
    """A model of transformers whose input is a sound or its spectrum."""
    return Network(call(model, [key], outputs), (value,), (key,))


@published("whisper/whisper-tiny-encoder-3000", "transformers", dtypes=("bfloat16", "int8"))
def _whisper_encoder(batch: int) -> Network:
    import torch
    import transformers as tf

    model = tf.WhisperModel(tf.WhisperConfig()).encoder
    return of_sound(model, "input_features", ("last_hidden_state",), torch.randn(batch, 80, 3000))


@published("whisper/whisper-tiny-decoder-step-63", "transformers")
def _whisper_decoder(batch: int) -> Network:
    """One token after 63, over 30 seconds of encoded sound."""
    import torch
    import transformers as tf

    config = tf.WhisperConfig()
    model, layers = tf.WhisperForConditionalGeneration(config), config.decoder_layers
    own, names = pasts(layers, batch, 6, 63, 64)
    cross, more = pasts(layers, batch, 6, 1500, 64, prefix="cross")

    class Decode(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = model.model.decoder, model.proj_out

        def forward(self, input_ids: Any, encoder_hidden_states: Any, position_ids: Any, **other: Any) -> Any:
            found = self.inner(
                input_ids=input_ids, encoder_hidden_states=encoder_hidden_states,
                position_ids=position_ids, **other,
            )  # fmt: skip
            found.last_hidden_state = self.head(found.last_hidden_state)
            return found

    keys = ("input_ids", "encoder_hidden_states", "position_ids")
    args = (tokens(51865, batch, 1), torch.randn(batch, 1500, 384), torch.full((batch, 1), 63), *own, *cross)
    return Network(stepping(Decode(), layers, keys, cross=True), args, (*keys, *names, *more))


@published("wav2vec2/wav2vec2-base-16000", "transformers", dims={"batch": 2})
def _wav2vec2(batch: int) -> Network:
    import torch
    import transformers as tf

    model = tf.Wav2Vec2ForCTC(tf.Wav2Vec2Config())
    return of_sound(model, "input_values", ("logits",), torch.randn(batch, 16000))


@published("wav2vec2/hubert-base-16000", "transformers", batches=(1,))
def _hubert(batch: int) -> Network:
    import torch
    import transformers as tf

    model = tf.HubertModel(tf.HubertConfig(num_hidden_layers=6))
    return of_sound(model, "input_values", ("last_hidden_state",), torch.randn(batch, 16000))


@published("conformer/conformer-s-400", "here", dims={"batch": 2}, dtypes=("bfloat16",))
def _conformer(batch: int) -> Network:
    """The encoder of the small Conformer: 4 s of sound in frames of 10 ms."""
    import torch

    from benchmarks.corpus.networks.speech import Conformer

    return Network(Conformer(), (torch.randn(batch, 400, 80),))


@published("spectrogram/ast-1024", "transformers", batches=(1,))
def _spectrogram(batch: int) -> Network:
    import torch
    import transformers as tf

    model = tf.ASTForAudioClassification(tf.ASTConfig(num_labels=527))
    return of_sound(model, "input_values", ("logits",), torch.randn(batch, 1024, 128))


@published("vocoder/hifigan-100", "transformers")
def _vocoder(batch: int) -> Network:
    """100 frames of a spectrum to 25600 samples."""
    import torch
    import transformers as tf

    class Sound(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = tf.SpeechT5HifiGan(tf.SpeechT5HifiGanConfig())

        def forward(self, x: Any) -> Any:
            return self.inner(x)

    return Network(Sound(), (torch.randn(batch, 100, 80),))


@published("keywords/dscnn-49x10", "here", dims={"batch": 2}, dtypes=("int8",))
def _keywords(batch: int) -> Network:
    import torch

    from benchmarks.corpus.networks.speech import KeywordNet

    return Network(KeywordNet(), (torch.randn(batch, 1, 49, 10),))


@published("separation/convtasnet-16000", "here", batches=(1,))
def _separation(batch: int) -> Network:
    import torch

    from benchmarks.corpus.networks.speech import ConvTasNet

    return Network(ConvTasNet(), (torch.randn(batch, 1, 16000),))


@published("codec/encodec-encoder-24000", "here", batches=(1,))
def _codec(batch: int) -> Network:
    import torch

    from benchmarks.corpus.networks.speech import CodecEncoder

    return Network(CodecEncoder(), (torch.randn(batch, 1, 24000),))


@published("tacotron/tacotron2-encoder-100", "here")
def _tacotron(batch: int) -> Network:
    from benchmarks.corpus.networks.speech import TextEncoder

    return Network(TextEncoder(), (tokens(148, batch, 100),), ("text",))


@published("ocr/crnn-32x160", "here", dims={"batch": 2})
def _crnn(batch: int) -> Network:
    """Text of an image by convolutions and a bidirectional LSTM."""
    from benchmarks.corpus.exporting import picture
    from benchmarks.corpus.networks.speech import Crnn

    return Network(Crnn(), (picture(batch, 1, 32, 160),))

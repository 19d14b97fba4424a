"""Encoders of texts."""

from __future__ import annotations

from benchmarks.torch_models.making import encoder
from benchmarks.torch_models.recipe import words

encoder("bert", "BertModel", "Bert")
encoder("bert-masked", "BertForMaskedLM", "Bert", trains="classes")
encoder("bert-classes", "BertForSequenceClassification", "Bert", trains="classes", num_labels=5)
encoder("bert-span", "BertForQuestionAnswering", "Bert")
encoder("roberta", "RobertaForMaskedLM", "Roberta", trains="classes", pad_token_id=1)
encoder("xlmroberta", "XLMRobertaModel", "XLMRoberta", pad_token_id=1)
encoder(
    "distilbert", "DistilBertForMaskedLM", "DistilBert", trains="classes",
    base={"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64,
          "max_position_embeddings": 64},
)  # fmt: skip
encoder("albert", "AlbertForMaskedLM", "Albert", embedding_size=16, trains="classes")
encoder("electra", "ElectraForPreTraining", "Electra", embedding_size=16)
encoder(
    "deberta", "DebertaModel", "Deberta", relative_attention=True, pos_att_type=["p2c", "c2p"],
    max_relative_positions=16, pad_token_id=0,
)  # fmt: skip
encoder(
    "debertav2", "DebertaV2ForMaskedLM", "DebertaV2", relative_attention=True, pos_att_type=["p2c", "c2p"],
    position_buckets=8, max_relative_positions=16, norm_rel_ebd="layer_norm", share_att_key=True,
    conv_kernel_size=3, pad_token_id=0,
)  # fmt: skip
encoder("mpnet", "MPNetForMaskedLM", "MPNet")
encoder("ernie", "ErnieModel", "Ernie", use_task_id=False)
encoder("megatron", "MegatronBertModel", "MegatronBert")
encoder(
    "mobilebert", "MobileBertModel", "MobileBert", embedding_size=16, intra_bottleneck_size=16,
    true_hidden_size=16, num_feedforward_networks=2, key_query_shared_bottleneck=True,
)  # fmt: skip
encoder("convbert", "ConvBertModel", "ConvBert", embedding_size=16, head_ratio=1, conv_kernel_size=3)
encoder("fnet", "FNetModel", "FNet", words(mask=False), tpu_short_seq_length=8)
encoder(
    "squeezebert", "SqueezeBertModel", "SqueezeBert", q_groups=2, k_groups=2, v_groups=2,
    post_attention_groups=1,
    intermediate_groups=2, output_groups=2, embedding_size=32,
)  # fmt: skip
encoder("roformer", "RoFormerForMaskedLM", "RoFormer", embedding_size=16, trains="classes")
encoder("rembert", "RemBertModel", "RemBert", input_embedding_size=16, output_embedding_size=16)
encoder("splinter", "SplinterModel", "Splinter")
encoder("esm", "EsmForMaskedLM", "Esm", position_embedding_type="rotary", pad_token_id=1, mask_token_id=2)
encoder("modernbert", "ModernBertModel", "ModernBert", local_attention=8, pad_token_id=0, cls_token_id=1,
        sep_token_id=2, bos_token_id=1, eos_token_id=2)  # fmt: skip
encoder("nomic", "NomicBertModel", "NomicBert")
encoder("layoutlm", "LayoutLMModel", "LayoutLM", max_2d_position_embeddings=64)
encoder("luke", "LukeModel", "Luke", entity_vocab_size=20, entity_emb_size=16)
encoder("canine", "CanineModel", "Canine", words(length=16, fixed_length=True), num_hash_buckets=64,
        num_hash_functions=2, downsampling_rate=4, local_transformer_stride=8, upsampling_kernel_size=4,
        max_position_embeddings=64, dynamic=False)  # fmt: skip
encoder("bigbird", "BigBirdModel", "BigBird", attention_type="original_full")
encoder(
    "funnel", "FunnelModel", "Funnel", words(length=8, fixed_length=True),
    base={"vocab_size": 99, "block_sizes": [1, 1], "d_model": 32, "n_head": 2, "d_head": 16, "d_inner": 64,
          "num_decoder_layers": 1},
)  # fmt: skip
encoder("xlnet", "XLNetModel", "XLNet", base={"vocab_size": 99, "d_model": 32, "n_layer": 2, "n_head": 2,
        "d_inner": 64}, use_mems_eval=False)  # fmt: skip
encoder("xlm", "XLMModel", "XLM", base={"vocab_size": 99, "n_words": 99, "emb_dim": 32, "n_layers": 2,
        "n_heads": 2, "max_position_embeddings": 64})  # fmt: skip
encoder("flaubert", "FlaubertModel", "Flaubert", base={"vocab_size": 99, "n_words": 99, "emb_dim": 32,
        "n_layers": 2, "n_heads": 2, "max_position_embeddings": 64})  # fmt: skip

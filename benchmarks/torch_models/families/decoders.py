"""Language models that are decoders, without caches."""

from __future__ import annotations

from typing import Any

from benchmarks.torch_models.making import SMALL, encoder
from benchmarks.torch_models.recipe import Inputs, words

GROUPED = {**SMALL, "num_key_value_heads": 1, "head_dim": 16, "pad_token_id": 0}
"""Grouped-query attention of one key head for two heads."""


def decoder(
    name: str, prefix: str, inputs: Inputs | None = None, *, dynamic: bool = True, trains: str = "",
    base: dict[str, Any] = GROUPED, head: str = "ForCausalLM", **given: Any,
) -> None:  # fmt: skip
    encoder(
        name, f"{prefix}{head}", prefix, inputs, dynamic=dynamic, trains=trains, base=base, use_cache=False,
        **given,
    )  # fmt: skip


GPT = {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}

decoder("gpt2", "GPT2", base=GPT, head="LMHeadModel", trains="classes")
decoder("gpt2-classes", "GPT2", base=GPT, head="ForSequenceClassification", pad_token_id=0, num_labels=3)
decoder("openaigpt", "OpenAIGPT", words(mask=False), base=GPT, head="LMHeadModel")
decoder("gptj", "GPTJ", base=GPT, rotary_dim=8, trains="classes")
decoder("codegen", "CodeGen", base={**GPT, "n_head": 4}, rotary_dim=4)
decoder("gptbigcode", "GPTBigCode", base=GPT)
decoder("gptneo", "GPTNeo", base={"vocab_size": 99, "hidden_size": 32, "num_layers": 2, "num_heads": 2,
        "max_position_embeddings": 64, "window_size": 4, "attention_types": [[["global", "local"], 1]]},
        trains="classes")  # fmt: skip
decoder("gptneox", "GPTNeoX", base=SMALL, trains="classes")
decoder("opt", "OPT", base={"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "ffn_dim": 64,
        "num_attention_heads": 2, "max_position_embeddings": 64, "word_embed_proj_dim": 16,
        "pad_token_id": 1}, trains="classes")  # fmt: skip
decoder("llama", "Llama", trains="classes")
decoder("llama-scaled", "Llama", rope_parameters={"rope_type": "llama3", "factor": 8.0, "rope_theta": 1e4,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32})  # fmt: skip
decoder("llama-classes", "Llama", head="ForSequenceClassification", num_labels=3)
decoder("mistral", "Mistral", sliding_window=4, trains="classes")
decoder("qwen2", "Qwen2", trains="classes")
decoder("qwen3", "Qwen3", trains="classes")
decoder("gemma", "Gemma", trains="classes")
decoder("gemma2", "Gemma2", sliding_window=4, query_pre_attn_scalar=16)
decoder("phi", "Phi", base=SMALL, partial_rotary_factor=0.5)
decoder("phi3", "Phi3", base={**SMALL, "num_key_value_heads": 1, "pad_token_id": 0})
decoder("falcon", "Falcon", base=SMALL, new_decoder_architecture=False, multi_query=True)
decoder("falcon-alibi", "Falcon", base=SMALL, alibi=True)
decoder("bloom", "Bloom", base={"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 2},
        trains="classes")  # fmt: skip
decoder("stablelm", "StableLm")
decoder("starcoder2", "Starcoder2", sliding_window=4)
decoder("cohere", "Cohere")
decoder("olmo", "Olmo")
decoder("olmo2", "Olmo2")
decoder("granite", "Granite")
decoder("persimmon", "Persimmon", base=SMALL)
decoder("nemotron", "Nemotron")
decoder("glm", "Glm", partial_rotary_factor=0.5)
decoder("exaone4", "Exaone4", sliding_window=4)
decoder("smollm3", "SmolLM3")
decoder("helium", "Helium")
decoder("mpt", "Mpt", base={"vocab_size": 99, "d_model": 32, "n_layers": 2, "n_heads": 2, "max_seq_len": 64,
        "expansion_ratio": 2})  # fmt: skip
decoder("xglm", "XGLM", base={"vocab_size": 99, "d_model": 32, "num_layers": 2, "attention_heads": 2,
        "ffn_dim": 64, "max_position_embeddings": 64})  # fmt: skip
decoder("ctrl", "CTRL", base={"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 2, "dff": 64,
        "n_positions": 64}, head="LMHeadModel")  # fmt: skip
decoder("biogpt", "BioGpt", base=SMALL)
decoder("mixtral", "Mixtral", num_local_experts=4, num_experts_per_tok=2)
decoder("qwen2moe", "Qwen2Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
        shared_expert_intermediate_size=32)  # fmt: skip
decoder("gptoss", "GptOss", num_local_experts=4, num_experts_per_tok=2, sliding_window=4)
decoder("deepseek", "DeepseekV3", base=SMALL, num_key_value_heads=2, n_routed_experts=4, n_group=2,
        topk_group=1, num_experts_per_tok=2, moe_intermediate_size=32, q_lora_rank=16, kv_lora_rank=16,
        qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16, first_k_dense_replace=1)  # fmt: skip
decoder("mamba", "Mamba", words(mask=False), base={"vocab_size": 99, "hidden_size": 32, "state_size": 4,
        "num_hidden_layers": 2, "expand": 2}, trains="classes")  # fmt: skip
decoder("mamba2", "Mamba2", words(mask=False, length=16), base={"vocab_size": 99, "hidden_size": 32,
        "state_size": 8, "num_hidden_layers": 2, "expand": 2, "head_dim": 16, "num_heads": 4, "n_groups": 1,
        "chunk_size": 8})  # fmt: skip
decoder("falconmamba", "FalconMamba", words(mask=False), base={"vocab_size": 99, "hidden_size": 32,
        "state_size": 4, "num_hidden_layers": 2})  # fmt: skip
decoder("rwkv", "Rwkv", words(mask=False), base={"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2,
        "attention_hidden_size": 32, "intermediate_size": 64, "context_length": 64})  # fmt: skip
decoder("recurrentgemma", "RecurrentGemma", base={**SMALL, "num_hidden_layers": 3, "lru_width": 32,
        "attention_window_size": 8, "head_dim": 16, "num_key_value_heads": 1})  # fmt: skip
decoder("lfm2", "Lfm2", base={**SMALL, "num_key_value_heads": 1}, layer_types=["conv", "full_attention"])
decoder(
    "jamba",
    "Jamba",
    base={**SMALL, "num_key_value_heads": 1},
    num_experts=2,
    num_experts_per_tok=1,
    use_mamba_kernels=False,
    attn_layer_period=2,
    attn_layer_offset=1,
    mamba_d_state=4,
    mamba_dt_rank=4,
)
decoder("reformer", "Reformer", words(length=8, mask=False, fixed_length=True), head="ModelWithLMHead",
        base={"vocab_size": 99, "hidden_size": 32, "attention_head_size": 16, "num_attention_heads": 2,
              "feed_forward_size": 64, "attn_layers": ["local", "local"], "axial_pos_embds": False,
              "max_position_embeddings": 64, "local_attn_chunk_length": 4, "is_decoder": True},
        dynamic=False)  # fmt: skip

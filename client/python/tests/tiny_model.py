"""Small random models for engines, written as config.json and safetensors: no download, no tokenizer. Their weights are scaled so that
every token depends on all before it; with near-zero weights an engine gives the same tokens whatever its cache holds."""
import json, pathlib

VOCABULARY = 1024
COMMON = dict(hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2, head_dim=64, vocab_size=VOCABULARY,
              max_position_embeddings=4096, bos_token_id=1, eos_token_id=2, attention_bias=False, tie_word_embeddings=False,
              torch_dtype="bfloat16")
LLAMA = dict(COMMON, architectures=["LlamaForCausalLM"], model_type="llama", num_hidden_layers=4, rms_norm_eps=1e-5, rope_theta=10000.0,
             hidden_act="silu", mlp_bias=False)


def prompt(number, length=600):
    return [3 + (i * 6151 + number * 99991 + i * i % 89) % (VOCABULARY - 24) for i in range(length)]


def write(folder, config=LLAMA, seed=5):
    """Writes the model once; gives its folder."""
    import torch
    from safetensors.torch import save_file

    folder = pathlib.Path(folder)
    if (folder / "model.safetensors").exists():
        return str(folder)
    folder.mkdir(parents=True, exist_ok=True)
    random = torch.Generator().manual_seed(seed)
    hidden, head, mlp = config["hidden_size"], config["head_dim"], config["intermediate_size"]
    query, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head

    def matrix(rows, columns, gain):
        return (torch.randn(rows, columns, generator=random) * gain / columns**0.5).to(torch.bfloat16)

    ones = torch.ones(hidden, dtype=torch.bfloat16)
    weights = {"model.embed_tokens.weight": matrix(config["vocab_size"], hidden, hidden**0.5), "model.norm.weight": ones.clone(),
               "lm_head.weight": matrix(config["vocab_size"], hidden, 3.0)}
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        for name, rows, columns, gain in (("self_attn.q_proj", query, hidden, 2.0), ("self_attn.k_proj", kv, hidden, 2.0),
                                          ("self_attn.v_proj", kv, hidden, 2.0), ("self_attn.o_proj", hidden, query, 2.0),
                                          ("mlp.gate_proj", mlp, hidden, 1.0), ("mlp.up_proj", mlp, hidden, 1.0),
                                          ("mlp.down_proj", hidden, mlp, 1.0)):
            weights[f"{at}{name}.weight"] = matrix(rows, columns, gain)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{at}{name}.weight"] = ones.clone()
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)

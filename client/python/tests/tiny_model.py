"""Small random models for engines, written as config.json and safetensors: no download, no tokenizer. Their weights are scaled so that
every token depends on all before it; with near-zero weights an engine gives the same tokens whatever its cache holds."""
import json, pathlib

VOCABULARY = 1024
COMMON = dict(hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2, head_dim=64, vocab_size=VOCABULARY,
              max_position_embeddings=4096, bos_token_id=1, eos_token_id=2, attention_bias=False, tie_word_embeddings=False,
              torch_dtype="bfloat16")
LLAMA = dict(COMMON, architectures=["LlamaForCausalLM"], model_type="llama", num_hidden_layers=4, rms_norm_eps=1e-5, rope_theta=10000.0,
             hidden_act="silu", mlp_bias=False)
# Enough arithmetic a token that computing costs more than anything else.
WIDE = LLAMA | dict(hidden_size=1024, intermediate_size=2816, num_attention_heads=16, num_hidden_layers=6)
# Three layers with a state to one that sees all tokens.
QWEN3_NEXT = dict(COMMON, architectures=["Qwen3NextForCausalLM"], model_type="qwen3_next", num_hidden_layers=4, rms_norm_eps=1e-6,
                  rope_theta=10000.0, partial_rotary_factor=0.25, hidden_act="silu", linear_conv_kernel_dim=4, linear_key_head_dim=128,
                  linear_value_head_dim=128, linear_num_key_heads=2, linear_num_value_heads=4, decoder_sparse_step=1, moe_intermediate_size=128,
                  shared_expert_intermediate_size=128, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True, mlp_only_layers=[],
                  layer_types=["linear_attention"] * 3 + ["full_attention"])
MODELS = {"llama": LLAMA, "wide": WIDE, "qwen3-next": QWEN3_NEXT}


def prompt(number, length=600):
    return [3 + (i * 6151 + number * 99991 + i * i % 89) % (VOCABULARY - 24) for i in range(length)]


class Weights:
    """A checkpoint in the making."""

    def __init__(self, config, seed):
        import torch

        self.torch, self.config, self.random, self.all = torch, config, torch.Generator().manual_seed(seed), {}
        self.is_next = config["model_type"] == "qwen3_next"

    def matrix(self, name, rows, columns, gain=1.0):
        made = self.torch.randn(rows, columns, generator=self.random) * gain / columns**0.5
        self.all[f"{name}.weight"] = made.to(self.torch.bfloat16)

    def vector(self, name, size, value):
        self.all[name] = self.torch.full((size,), float(value), dtype=self.torch.bfloat16)

    def norm(self, name, size):
        self.vector(f"{name}.weight", size, 0.0 if self.is_next else 1.0)  # Qwen3-Next multiplies by 1 + weight.

    def attention(self, at):
        c = self.config
        hidden, query, kv = c["hidden_size"], c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
        self.matrix(at + "q_proj", 2 * query if self.is_next else query, hidden, 2.0)  # There with a gate.
        for name in ("k_proj", "v_proj"):
            self.matrix(at + name, kv, hidden, 2.0)
        self.matrix(at + "o_proj", hidden, query, 2.0)
        for name in ("q_norm", "k_norm") if self.is_next else ():
            self.vector(f"{at}{name}.weight", c["head_dim"], 1.0)  # Twice as sharp.

    def delta_net(self, at):
        c = self.config
        hidden, heads = c["hidden_size"], c["linear_num_value_heads"]
        keys, values = c["linear_num_key_heads"] * c["linear_key_head_dim"], heads * c["linear_value_head_dim"]
        self.matrix(at + "in_proj_qkvz", 2 * keys + 2 * values, hidden, 2.0)
        self.matrix(at + "in_proj_ba", 2 * heads, hidden)
        self.matrix(at + "conv1d", 2 * keys + values, c["linear_conv_kernel_dim"], 2.0)
        self.all[at + "conv1d.weight"] = self.all[at + "conv1d.weight"].unsqueeze(1)
        self.vector(at + "dt_bias", heads, -4.0)  # Forgets slowly.
        self.vector(at + "A_log", heads, -1.0)
        self.vector(at + "norm.weight", c["linear_value_head_dim"], 1.0)
        self.matrix(at + "out_proj", hidden, values, 2.0)

    def mlp(self, at, inside):
        self.matrix(at + "gate_proj", inside, self.config["hidden_size"])
        self.matrix(at + "up_proj", inside, self.config["hidden_size"])
        self.matrix(at + "down_proj", self.config["hidden_size"], inside)

    def layer(self, i):
        at, c = f"model.layers.{i}.", self.config
        if c.get("layer_types", ["full_attention"] * (i + 1))[i] == "full_attention":
            self.attention(at + "self_attn.")
        else:
            self.delta_net(at + "linear_attn.")
        if self.is_next:
            self.matrix(at + "mlp.gate", c["num_experts"], c["hidden_size"])
            self.matrix(at + "mlp.shared_expert_gate", 1, c["hidden_size"])
            self.mlp(at + "mlp.shared_expert.", c["shared_expert_intermediate_size"])
            for expert in range(c["num_experts"]):
                self.mlp(f"{at}mlp.experts.{expert}.", c["moe_intermediate_size"])
        else:
            self.mlp(at + "mlp.", c["intermediate_size"])
        for name in ("input_layernorm", "post_attention_layernorm"):
            self.norm(at + name, c["hidden_size"])


def write(folder, name="llama", seed=5):
    """Writes the model once; gives its folder."""
    from safetensors.torch import save_file

    folder, config = pathlib.Path(folder), MODELS[name]
    if (folder / "config.json").exists():
        return str(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights, hidden = Weights(config, seed), config["hidden_size"]
    weights.matrix("model.embed_tokens", config["vocab_size"], hidden, hidden**0.5)
    weights.norm("model.norm", hidden)
    weights.matrix("lm_head", config["vocab_size"], hidden, 3.0)
    for i in range(config["num_hidden_layers"]):
        weights.layer(i)
    save_file({name: weight.contiguous() for name, weight in weights.all.items()}, str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)

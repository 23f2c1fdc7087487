#include "engine/model/weight_slots.h"

#include <fmt/core.h>

namespace tandem {

std::vector<WeightSlot> weight_slots(const ModelConfig& c, ModelWeights& w) {
  const std::uint32_t q = c.q_heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  std::vector<WeightSlot> slots = {{"model.embed_tokens.weight", &w.embedding, c.vocab, c.hidden},
                                   {"model.norm.weight", &w.final_norm, 0, c.hidden}};
  if (!c.tied_embeddings) slots.push_back({"lm_head.weight", &w.lm_head, c.vocab, c.hidden});
  for (std::uint32_t i = 0; i < c.layers; ++i) {
    const std::string p = fmt::format("model.layers.{}.", i);
    LayerWeights& l = w.layers[i];
    for (const WeightSlot& s : std::vector<WeightSlot>{{"input_layernorm", &l.input_norm, 0, c.hidden},
                                                       {"self_attn.q_proj", &l.q, q, c.hidden},
                                                       {"self_attn.k_proj", &l.k, kv, c.hidden},
                                                       {"self_attn.v_proj", &l.v, kv, c.hidden},
                                                       {"self_attn.o_proj", &l.o, c.hidden, q},
                                                       {"post_attention_layernorm", &l.post_norm, 0, c.hidden},
                                                       {"mlp.gate_proj", &l.gate, c.intermediate, c.hidden},
                                                       {"mlp.up_proj", &l.up, c.intermediate, c.hidden},
                                                       {"mlp.down_proj", &l.down, c.hidden, c.intermediate}}) {
      slots.push_back({p + s.name + ".weight", s.view, s.rows, s.cols});
    }
    if (c.qkv_bias) {
      slots.push_back({p + "self_attn.q_proj.bias", &l.q_bias, 0, q, true});
      slots.push_back({p + "self_attn.k_proj.bias", &l.k_bias, 0, kv, true});
      slots.push_back({p + "self_attn.v_proj.bias", &l.v_bias, 0, kv, true});
    }
    if (c.qk_norm) {
      slots.push_back({p + "self_attn.q_norm.weight", &l.q_norm, 0, c.head_dim});
      slots.push_back({p + "self_attn.k_norm.weight", &l.k_norm, 0, c.head_dim});
    }
  }
  return slots;
}

}  // namespace tandem

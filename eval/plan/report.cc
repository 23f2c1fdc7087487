#include <cmath>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "eval/plan/plan.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

std::string gb(double bytes) {
  return fmt::format("{:.{}f}", bytes * 1e-9, bytes < 99.5e9 ? 2 : 0);
}

std::string facts(const Plan& p, bool markdown) {
  std::string text = fmt::format("KV of a token: {} bytes; of a block of {} tokens, over all layers: {} ({:.3f} MB).\n",
                                 p.token_bytes, p.options.block_tokens, p.block_bytes, double(p.block_bytes) * 1e-6);
  if (p.memory.device_bytes <= 0) {
    text += "The device does not hold the weights and 5 % for activations: nothing is left for KV.\n";
  } else {
    text += fmt::format("Room for KV on the device: {} GB, {} blocks, {} tokens.\n", gb(p.memory.device_bytes),
                        p.device_blocks, p.device_blocks * p.options.block_tokens);
  }
  text += std::isinf(p.memory.host_bytes)
              ? "Host memory is not known: what it holds is not counted.\n"
              : fmt::format("Room for KV in host memory: {} GB.\n", gb(p.memory.host_bytes));
  text += fmt::format(
      "The link ({:.4g} GB/s) brings a block back in {:.3f} ms: {} blocks, {} tokens, within a step of {:g} ms.\n",
      p.memory.link_bytes_per_second * 1e-9, p.block_ms, p.blocks_per_step, p.blocks_per_step * p.options.block_tokens,
      p.options.step_ms);
  return markdown ? text + "\n" : text;
}

std::string cell_text(const PlanCell& c) {
  if (c.offloaded == 0) return "fits";
  if (!c.host_fits) return fmt::format("{} GB: too much", gb(c.offloaded_bytes));
  return fmt::format("{} GB, {} blocks, {:.{}f} ms", gb(c.offloaded_bytes), c.offloaded, c.restore_ms,
                     c.restore_ms < 99.5 ? 1 : 0);
}

}  // namespace

std::string plan_text(const Plan& p, bool markdown) {
  std::string text = markdown
                         ? fmt::format("# KV of {}, {}\n\n", p.model, to_string(p.options.kv_type))
                         : fmt::format("KV of {} in {}, {}\n\n", p.model, to_string(p.options.kv_type), p.memory.title);
  if (markdown) text += p.memory.title + "\n\n";
  text += facts(p, markdown);

  Table requests;
  requests.head = {"context", "GB of a request", "requests on the device", "requests in host memory"};
  for (const PlanRow& r : p.rows)
    requests.rows.push_back({length_text(r.context), gb(r.request_bytes), std::to_string(r.on_device),
                             r.on_host == kUnlimited ? "not known" : std::to_string(r.on_host)});
  text += section("Requests", markdown) + text_of(requests, markdown);

  Table batches;
  batches.head = {"context"};
  for (const std::uint32_t batch : p.options.batches) batches.head.push_back(fmt::format("batch {}", batch));
  for (std::size_t i = 0; i < p.rows.size(); ++i) {
    std::vector<std::string>& row = batches.rows.emplace_back();
    row.push_back(length_text(p.rows[i].context));
    for (std::size_t b = 0; b < p.options.batches.size(); ++b)
      row.push_back(cell_text(p.cells[i * p.options.batches.size() + b]));
  }
  text += section("Left for host memory", markdown) + text_of(batches, markdown);
  text += (markdown ? "" : "\n") +
          note(
              "Blocks beyond the device's room, and how long the link takes to bring all of them back once, which is "
              "the least that a step takes where all are attended on the device. `tandem simulate` has what methods "
              "do instead.",
              markdown);
  return text;
}

std::string plan_json(const Plan& p) {
  nlohmann::ordered_json json;
  json["model"] = p.model;
  json["machine"] = p.memory.title;
  json["kv_type"] = to_string(p.options.kv_type);
  json["token_bytes"] = p.token_bytes;
  json["block_tokens"] = p.options.block_tokens;
  json["block_bytes"] = p.block_bytes;
  json["device_kv_bytes"] = p.memory.device_bytes;
  json["device_blocks"] = p.device_blocks;
  if (!std::isinf(p.memory.host_bytes)) json["host_kv_bytes"] = p.memory.host_bytes;
  json["link_bytes_per_second"] = p.memory.link_bytes_per_second;
  json["block_ms"] = p.block_ms;
  json["step_ms"] = p.options.step_ms;
  json["blocks_per_step"] = p.blocks_per_step;
  json["contexts"] = nlohmann::ordered_json::array();
  for (const PlanRow& r : p.rows) {
    nlohmann::ordered_json row = {
        {"context", r.context}, {"request_bytes", r.request_bytes}, {"requests_on_device", r.on_device}};
    if (r.on_host != kUnlimited) row["requests_on_host"] = r.on_host;
    json["contexts"].push_back(std::move(row));
  }
  json["batches"] = nlohmann::ordered_json::array();
  for (const PlanCell& c : p.cells)
    json["batches"].push_back({{"context", c.context},
                               {"batch", c.batch},
                               {"blocks", c.blocks},
                               {"offloaded_blocks", c.offloaded},
                               {"offloaded_bytes", c.offloaded_bytes},
                               {"restore_ms", c.restore_ms},
                               {"host_fits", c.host_fits}});
  return json_text(json, 1) + "\n";
}

}  // namespace tandem::eval

#include "eval/predict/plan.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "eval/predict/text.h"
#include "eval/report/markdown.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

std::uint64_t whole(double count) {
  return static_cast<std::uint64_t>(std::max(0.0, std::floor(count)));
}

std::uint64_t blocks_of(std::uint32_t context, const PlanOptions& options) {
  return (context + options.block_tokens - 1) / options.block_tokens;
}

MachinePlan plan_machine(const Plan& plan, const PlanMemory& memory) {
  const PlanOptions& options = plan.options;
  const auto block = double(plan.block_bytes);
  MachinePlan out;
  out.memory = memory;
  out.device_blocks = whole(memory.device_bytes / block);
  out.block_ms = 1e3 * block / memory.link_bytes_per_second;
  out.blocks_per_step = whole(options.step_ms / out.block_ms);
  if (!memory.holds_weights()) return out;
  for (std::size_t i = 0; i < options.contexts.size(); ++i) {
    const std::uint64_t blocks = blocks_of(options.contexts[i], options);
    out.rows.push_back({options.contexts[i], out.device_blocks / blocks,
                        std::isinf(memory.host_bytes) ? kUnlimited : whole(memory.host_bytes / plan.request_bytes[i])});
    for (const std::uint32_t batch : options.batches) {
      const std::uint64_t all = blocks * batch, offloaded = all - std::min(all, out.device_blocks);
      const double bytes = double(offloaded) * block;
      out.cells.push_back({options.contexts[i], batch, all, offloaded, bytes, double(offloaded) * out.block_ms,
                           bytes <= memory.host_bytes});
    }
  }
  return out;
}

std::string gb(double bytes) {
  return fmt::format("{:.{}f}", bytes * 1e-9, bytes < 99.5e9 ? 2 : 0);
}

std::string model_facts(const Plan& p) {
  std::string text = fmt::format(
      "Weights in {}: {} GB. KV of a token: {} bytes; of a block of {} tokens, over all layers: {} ({:.3f} "
      "MB).\n",
      bits_text(p.options.precision.weight_bits), gb(double(p.weight_bytes)), p.token_bytes, p.options.block_tokens,
      p.block_bytes, double(p.block_bytes) * 1e-6);
  const std::string beyond = listed(
      p.options.contexts, [&](std::uint32_t context) { return context > p.positions ? length_text(context) : ""; });
  if (!beyond.empty())
    text += fmt::format(
        "The model knows {} positions, and contexts of {} are beyond them: its RoPE would have to be "
        "scaled.\n",
        p.positions, beyond);
  return text;
}

std::string machine_facts(const Plan& p, const MachinePlan& m) {
  std::string text;
  if (!m.memory.holds_weights()) {
    text = fmt::format(
        "The device does not hold the weights and 5 % for activations, {} GB short: nothing is left for KV, and no "
        "request can run.\n",
        gb(-m.memory.device_bytes));
  } else {
    text = fmt::format("Room for KV on the device: {} GB, {} blocks, {} tokens.\n", gb(m.memory.device_bytes),
                       m.device_blocks, m.device_blocks * p.options.block_tokens);
  }
  text += std::isinf(m.memory.host_bytes)
              ? "Host memory is not known: what it holds is not counted.\n"
              : fmt::format("Room for KV in host memory: {} GB.\n", gb(m.memory.host_bytes));
  return text +
         fmt::format(
             "The link ({:.4g} GB/s) brings a block back in {:.3f} ms: {} blocks, {} tokens, within a step of {:g} "
             "ms.\n",
             m.memory.link_bytes_per_second * 1e-9, m.block_ms, m.blocks_per_step,
             m.blocks_per_step * p.options.block_tokens, p.options.step_ms);
}

std::string milliseconds(double ms) {
  return fmt::format("{:.{}f} ms", ms, ms < 99.5 ? 1 : 0);
}

/// `blocks`: how many, too.
std::string cell_text(const PlanCell& c, bool blocks) {
  if (c.offloaded == 0) return "fits";
  const std::string bytes = gb(c.offloaded_bytes) + " GB";
  if (!c.host_fits) return bytes + ": too much";
  return bytes + (blocks ? fmt::format(", {} blocks, ", c.offloaded) : ", ") + milliseconds(c.restore_ms);
}

std::string count_text(std::uint64_t requests) {
  return requests == kUnlimited ? "not known" : std::to_string(requests);
}

constexpr const char* kLeftForHostMemory =
    "Blocks beyond the device's room, and how long the link takes to bring all of them back once, which is the least "
    "that a step takes where all are attended on the device. `tandem simulate` has what methods do instead.";

std::string one_machine(const Plan& p, const MachinePlan& m, bool markdown) {
  Table requests, batches;
  requests.head = {"context", "GB of a request", "requests on the device", "requests in host memory"};
  batches.head = {"context"};
  for (const std::uint32_t batch : p.options.batches) batches.head.push_back(fmt::format("batch {}", batch));
  for (std::size_t i = 0; i < m.rows.size(); ++i) {
    const std::string context = length_text(m.rows[i].context);
    requests.rows.push_back(
        {context, gb(p.request_bytes[i]), std::to_string(m.rows[i].on_device), count_text(m.rows[i].on_host)});
    std::vector<std::string>& row = batches.rows.emplace_back();
    row.push_back(context);
    for (std::size_t b = 0; b < p.options.batches.size(); ++b)
      row.push_back(cell_text(m.cells[i * p.options.batches.size() + b], /*blocks=*/true));
  }
  return section("Requests", markdown) + text_of(requests, markdown) + section("KV beyond device memory", markdown) +
         text_of(batches, markdown);
}

/// A line for each machine and a column for each context; `cell` of a machine that holds the weights, by context.
template <typename Cell>
std::string by_context(const Plan& p, const std::string& title, bool markdown, const Cell& cell) {
  Table table;
  table.head = {"machine"};
  for (const std::uint32_t context : p.options.contexts) table.head.push_back(length_text(context));
  for (const MachinePlan& m : p.machines) {
    std::vector<std::string>& row = table.rows.emplace_back();
    row.push_back(m.memory.name);
    for (std::size_t i = 0; i < p.options.contexts.size(); ++i)
      row.push_back(m.memory.holds_weights() ? cell(m, i) : "-");
  }
  return section(title, markdown) + text_of(table, markdown);
}

std::string several_machines(const Plan& p, bool markdown) {
  Table machines;
  machines.head = {"machine", "GB for KV on the device", "GB for KV in host memory", "link GB/s",
                   fmt::format("tokens over the link in {:g} ms", p.options.step_ms)};
  for (const MachinePlan& m : p.machines)
    machines.rows.push_back({m.memory.name, m.memory.holds_weights() ? gb(m.memory.device_bytes) : "-",
                             std::isinf(m.memory.host_bytes) ? "not known" : gb(m.memory.host_bytes),
                             fmt::format("{:.4g}", m.memory.link_bytes_per_second * 1e-9),
                             std::to_string(m.blocks_per_step * p.options.block_tokens)});
  const std::string without =
      listed(p.machines, [](const MachinePlan& m) { return m.memory.holds_weights() ? "" : m.memory.name; });
  std::string text = section("Machines", markdown) + text_of(machines, markdown);
  if (!without.empty())
    text += (markdown ? "" : "\n") +
            note("-: " + without + " cannot hold the weights and 5 % for activations, so that no request runs there.",
                 markdown);
  text += by_context(p, "Requests on the device", markdown,
                     [](const MachinePlan& m, std::size_t i) { return count_text(m.rows[i].on_device); });
  text += by_context(p, "Requests in host memory", markdown,
                     [](const MachinePlan& m, std::size_t i) { return count_text(m.rows[i].on_host); });
  for (std::size_t b = 0; b < p.options.batches.size(); ++b)
    text += by_context(p, fmt::format("KV beyond device memory, batch {}", p.options.batches[b]), markdown,
                       [&](const MachinePlan& m, std::size_t i) {
                         return cell_text(m.cells[i * p.options.batches.size() + b], /*blocks=*/false);
                       });
  return text;
}

}  // namespace

std::uint64_t kv_bytes_per_token(const ModelConfig& config, DType type) {
  return std::uint64_t{2} * config.layers * config.kv_heads * config.head_dim * size_of(type);
}

Plan make_plan(const Model& shape, const std::vector<PlanMemory>& machines, const PlanOptions& options) {
  Plan plan{shape.name, shape.config.max_positions, options.precision.weights(shape.weights.bytes()), options, 0, 0, {},
            {}};
  plan.token_bytes = options.precision.kv(kv_bytes_per_token(shape.config, DType::bf16));
  plan.block_bytes = plan.token_bytes * options.block_tokens;
  for (const std::uint32_t context : options.contexts)
    plan.request_bytes.push_back(double(blocks_of(context, options)) * double(plan.block_bytes));
  for (const PlanMemory& memory : machines) plan.machines.push_back(plan_machine(plan, memory));
  return plan;
}

static void to_json(nlohmann::ordered_json& json, const PlanRow& r) {
  json = {{"context", r.context}, {"requests_on_device", r.on_device}};
  if (r.on_host != kUnlimited) json["requests_on_host"] = r.on_host;
}

static void to_json(nlohmann::ordered_json& json, const PlanCell& c) {
  json = {{"context", c.context},
          {"batch", c.batch},
          {"blocks", c.blocks},
          {"offloaded_blocks", c.offloaded},
          {"offloaded_bytes", c.offloaded_bytes},
          {"restore_ms", c.restore_ms},
          {"host_fits", c.host_fits}};
}

static void to_json(nlohmann::ordered_json& json, const MachinePlan& m) {
  json = {{"name", m.memory.name},
          {"title", m.memory.title},
          {"holds_weights", m.memory.holds_weights()},
          {"device_kv_bytes", m.memory.device_bytes},
          {"device_blocks", m.device_blocks}};
  if (!std::isinf(m.memory.host_bytes)) json["host_kv_bytes"] = m.memory.host_bytes;
  json["link_bytes_per_second"] = m.memory.link_bytes_per_second;
  json["block_ms"] = m.block_ms;
  json["blocks_per_step"] = m.blocks_per_step;
  json["contexts"] = m.rows;
  json["batches"] = m.cells;
}

std::string plan_text(const Plan& p, bool markdown) {
  const bool one = p.machines.size() == 1;
  const std::string what = fmt::format("KV of {} in {}", p.model, bits_text(p.options.precision.kv_bits));
  const std::string machine = one ? p.machines.front().memory.title : "";
  std::string text = markdown ? "# " + markdown_text(what) : what;
  if (one) text += markdown ? "\n\n" + markdown_paragraph(machine) : ", " + machine;
  const std::string bits = p.options.precision == Precision{} ? "" : std::string(kHowBitsCount) + "\n";
  const std::string facts = model_facts(p) + bits + (one ? machine_facts(p, p.machines.front()) : "");
  text += "\n\n" + (markdown ? facts + "\n" : wrap(facts, terminal_width()) + "\n");
  const bool runs = std::ranges::any_of(p.machines, [](const MachinePlan& m) { return m.memory.holds_weights(); });
  if (one && !runs) return text;
  text += one ? one_machine(p, p.machines.front(), markdown) : several_machines(p, markdown);
  return text + (markdown ? "" : "\n") + note(kLeftForHostMemory, markdown);
}

std::string plan_json(const Plan& p) {
  nlohmann::ordered_json json = {{"model", p.model},
                                 {"positions", p.positions},
                                 {"weight_bytes", p.weight_bytes},
                                 {"weight_bits", p.options.precision.weight_bits},
                                 {"kv_bits", p.options.precision.kv_bits},
                                 {"token_bytes", p.token_bytes},
                                 {"block_tokens", p.options.block_tokens},
                                 {"block_bytes", p.block_bytes},
                                 {"step_ms", p.options.step_ms}};
  json["requests"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < p.request_bytes.size(); ++i)
    json["requests"].push_back({{"context", p.options.contexts[i]}, {"bytes", p.request_bytes[i]}});
  json["machines"] = p.machines;
  return json_text(json, 1) + "\n";
}

}  // namespace tandem::eval

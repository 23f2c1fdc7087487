#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "engine/common/version.h"
#include "eval/report/table.h"
#include "eval/reproduce/asyncspade.h"

namespace tandem::eval {
namespace {

/// Milliseconds or gigabytes.
std::string hundredths(double value) {
  return fmt::format("{:.2f}", value);
}

std::string percent(double share) {
  return fmt::format("{:+.0f} %", 100 * share);
}

/// Appends a row: the pack's cells, and these with the heads of their columns.
void add_row(Table& table, const SpadePack& p, const std::vector<std::pair<std::string, std::string>>& cells) {
  table.leading = 4;
  table.head = {"model", "batch x context", "GPU", "pack"};
  std::vector<std::string>& row = table.rows.emplace_back();
  row = {p.model, fmt::format("{} x {}K", p.batch, p.context / 1024), p.gpu, std::to_string(p.layers)};
  for (const auto& [head, cell] : cells) {
    table.head.push_back(head);
    row.push_back(cell);
  }
}

std::string whole(double value) {
  return fmt::format("{:.0f}", value);
}

std::string idle_share(const SpadeRun& run) {
  return whole(100 * run.idle_ms / run.step_ms);
}

/// Bytes of a pack and the rates that the times come to: why a time is what it is.
std::string rates_text(const std::vector<SpadeRow>& rows, bool markdown) {
  Table table;
  for (const SpadeRow& r : rows) {
    const double inference = r.bytes.inference() * 1e-6, management = r.bytes.management() * 1e-6;
    add_row(table, r.pack,
            {{"inference GB", hundredths(inference * 1e-3)},
             {"inference GB/s, published", whole(inference / r.pack.inference_ms)},
             {"inference GB/s, simulated", whole(inference / r.ours.times.inference_ms)},
             {"cache GB", hundredths(management * 1e-3)},
             {"of it keys", fmt::format("{:.0f} %", 100 * r.bytes.keys / r.bytes.management())},
             {"cache GB/s, published", whole(management / r.pack.management_ms)},
             {"cache GB/s, simulated", whole(management / r.ours.times.management_ms)},
             {"datasheet GB/s", whole(r.hbm_gbps)}});
  }
  return section("Bytes of a pack, and how fast they are read", markdown) + text_of(table, markdown) +
         note(
             "inference: weights and selected KV; cache: every key once, K and V of the choice in and out, a score per "
             "token and KV head out and in, the query window. A published rate is these bytes over the published time. "
             "An exact choice of single tokens reads every key, so that a cache rank as fast as the inference rank "
             "keeps up only where a pack has more bytes of weights and selected KV than of keys and choice.",
             markdown);
}

}  // namespace

std::string spade_table2_text(const std::vector<SpadeRow>& rows, bool markdown) {
  Table table;
  std::size_t below_ours = 0, below_framework = 0, below_published = 0, below_roofline = 0, predicted = 0, near = 0;
  double furthest = 0;
  std::map<std::string, double> framework;
  for (const SpadeRow& r : rows) {
    const SpadeTimes &bare = r.ours.times, &with = r.with_framework.times;
    const bool ours = bare.management_ms < bare.inference_ms, framed = with.management_ms < with.inference_ms,
               published = bare.management_ms < r.pack.inference_ms;
    below_ours += ours ? 1 : 0;
    below_framework += framed ? 1 : 0;
    below_published += published ? 1 : 0;
    below_roofline += r.roofline.management_ms < r.roofline.inference_ms ? 1 : 0;
    const double error = with.inference_ms / r.pack.inference_ms - 1;
    if (!r.fitted) {
      ++predicted;
      near += std::abs(error) <= 0.1 ? 1 : 0;
      furthest = std::abs(error) > std::abs(furthest) ? error : furthest;
    }
    framework[r.pack.gpu] = r.framework_ms;
    add_row(table, r.pack,
            {{"inference, published", hundredths(r.pack.inference_ms)},
             {"cache, published", hundredths(r.pack.management_ms)},
             {"inference, simulated", hundredths(bare.inference_ms)},
             {"with framework", hundredths(with.inference_ms)},
             {"its error", r.fitted ? "fitted" : percent(error)},
             {"cache, simulated", hundredths(bare.management_ms)},
             {"its error", percent(bare.management_ms / r.pack.management_ms - 1)},
             {"transfer, simulated", hundredths(bare.transfer_ms)},
             {"inference, roofline", hundredths(r.roofline.inference_ms)},
             {"cache, roofline", hundredths(r.roofline.management_ms)},
             {"below ours", ours ? "yes" : "NO"},
             {"below with framework", framed ? "yes" : "NO"},
             {"below published", published ? "yes" : "NO"},
             {"idle %, simulated", idle_share(r.ours)},
             {"idle %, with framework", idle_share(r.with_framework)}});
  }
  std::string overheads;
  for (const auto& [gpu, value] : framework)
    overheads += fmt::format("{}{:.3f} ms on {}", overheads.empty() ? "" : ", ", value, gpu);
  Table links;
  for (const SpadeRow& r : rows)
    add_row(links, r.pack,
            {{"published", fmt::format("{:.1f}", r.pack.bandwidth)},
             {"simulated", fmt::format("{:.1f}", r.bytes.selected * 1e-6 / r.ours.times.inference_ms)},
             {"link", whole(r.bytes.selected * 1e-6 / r.roofline.transfer_ms)}});
  return section("AsyncSpade, Table 2: ms per pack of layers, simulated for asyncspade-a100 and -h100", markdown) +
         text_of(table, markdown) +
         note(fmt::format(
                  "inference: the inference rank's work on the layers of a pack; cache: prediction, scores, top-k and "
                  "gather of the cache rank; roofline: bytes over the datasheet's HBM bandwidth (weights and selected "
                  "KV; all keys, and what is gathered in and out). With framework: one fitted parameter per GPU, the "
                  "time "
                  "that the framework of the published figures adds to a layer of the inference rank ({}), from the "
                  "published inference of 8B, 8 x 32K, packs of 6; of the {} other inference times {} are within 10 %, "
                  "the furthest is {} off. Nothing of the cache rank is fitted. Cache management takes less than the "
                  "published inference in {} of {} rows, less than the simulated one in {}, than the one with the "
                  "framework in {}, and on the roofline in {}. idle: the device's, mean over the last 8 of 48 steps.",
                  overheads, predicted, near, percent(furthest), below_published, rows.size(), below_ours,
                  below_framework, below_roofline),
              markdown) +
         rates_text(rows, markdown) + section("Bandwidth that hides the selection, GB/s", markdown) +
         text_of(links, markdown) +
         note(
             "published: minimal bandwidth, in the 8B rows 2 x selected K and V of the pack in MiB over the inference "
             "time; simulated: K and V selected, once, over our inference time; link: of the profile.",
             markdown);
}

std::string spade_fig10_text(const std::vector<SpadeBar>& bars, bool markdown) {
  Table table;
  table.leading = 3;
  table.head = {"model",
                "GPU",
                "method",
                "TPOT ms, simulated",
                "idle ms, simulated",
                "asyncspade against it, simulated",
                "TPOT ms, roofline",
                "asyncspade against it, roofline",
                "published",
                "KV GB of room",
                "peer GB of room"};
  const SpadeBar* own = nullptr;
  double rank = 0;
  for (const SpadeBar& bar : bars) {
    own = &*std::ranges::find_if(bars, [&](const SpadeBar& b) {
      return b.model == bar.model && b.gpu == bar.gpu && b.method.starts_with("asyncspade");
    });
    const bool is_own = own == &bar;
    if (is_own) rank = std::max(rank, own->rank_ms / own->roofline_ms);
    table.rows.push_back(
        {bar.model, bar.gpu, bar.method, hundredths(bar.tpot_ms), hundredths(bar.idle_ms),
         is_own ? "-" : percent(own->tpot_ms / bar.tpot_ms - 1), hundredths(bar.roofline_ms),
         is_own ? "-" : percent(own->roofline_ms / bar.roofline_ms - 1),
         bar.method == "full"           ? "-50 % at least"
         : bar.method.starts_with("qu") ? "-20 % at least"
                                        : "-",
         fmt::format("{:.1f} of {:.1f}{}", bar.kv_gb, bar.room_gb, bar.kv_gb <= bar.room_gb ? "" : ": NO"),
         is_own ? fmt::format("{:.1f} of {:.1f}{}", bar.peer_gb, bar.peer_room_gb,
                              bar.peer_gb <= bar.peer_room_gb ? "" : ": NO")
                : "-"});
  }
  return section("AsyncSpade, Figure 10, simulated for asyncspade-a100 and -h100", markdown) +
         text_of(table, markdown) +
         note(fmt::format(
                  "Batch 8, 32K of context, 2,048 selected tokens; means over the last 8 of 48 steps (of 12 "
                  "where each step is like the one before). roofline: bytes "
                  "that the device reads over the datasheet's bandwidth, a cache rank that always keeps up; its own "
                  "roofline is up to {:.2f} times that step. published: the claims of section 5.3; the figure's bars "
                  "are not given as numbers. KV: on the device, and what it has beside the weights; where that is "
                  "not enough (NO) the times are those of a device with more memory. peer: KV of whole pages, "
                  "selections and query windows that the simulated cache rank holds, and what its device, which has no "
                  "weights, has for them.",
                  rank),
              markdown);
}

std::string spade_table2_json(const std::vector<SpadeRow>& rows) {
  nlohmann::ordered_json json = {{"schema", "tandem-asyncspade-table2-3"},
                                 {"tandem_version", version()},
                                 {"git_commit", git_commit()},
                                 {"clock", "simulated for asyncspade-a100 and asyncspade-h100"},
                                 {"steps", 48},
                                 {"steps_counted", 8},
                                 {"free_parameter",
                                  {{"name", "framework_ms"},
                                   {"meaning", "added to a layer of the inference rank by the testbed's framework"},
                                   {"fitted_to", "inference_ms of qwen3-8b, 8 x 32768, pack 6, one per GPU"}}},
                                 {"rows", nlohmann::ordered_json::array()}};
  const auto times = [](const SpadeTimes& t) {
    return nlohmann::ordered_json{
        {"inference_ms", t.inference_ms}, {"management_ms", t.management_ms}, {"transfer_ms", t.transfer_ms}};
  };
  const auto run = [&](const SpadeRun& r) {
    nlohmann::ordered_json out = times(r.times);
    out["step_ms"] = r.step_ms;
    out["idle_ms"] = r.idle_ms;
    return out;
  };
  for (const SpadeRow& r : rows) {
    json["rows"].push_back({{"model", r.pack.model},
                            {"batch", r.pack.batch},
                            {"context", r.pack.context},
                            {"selected", r.pack.selected},
                            {"gpu", r.pack.gpu},
                            {"pack", r.pack.layers},
                            {"published",
                             {{"inference_ms", r.pack.inference_ms},
                              {"management_ms", r.pack.management_ms},
                              {"bandwidth", r.pack.bandwidth}}},
                            {"ours", run(r.ours)},
                            {"with_framework", run(r.with_framework)},
                            {"framework_ms", r.framework_ms},
                            {"fitted", r.fitted},
                            {"roofline", times(r.roofline)},
                            {"bytes",
                             {{"weights", r.bytes.weights},
                              {"selected", r.bytes.selected},
                              {"keys", r.bytes.keys},
                              {"choice", r.bytes.choice},
                              {"scores", r.bytes.scores},
                              {"queries", r.bytes.queries}}}});
  }
  return json_text(json, 1) + "\n";
}

std::string spade_fig10_json(const std::vector<SpadeBar>& bars) {
  nlohmann::ordered_json json = {{"schema", "tandem-asyncspade-fig10-2"},
                                 {"tandem_version", version()},
                                 {"git_commit", git_commit()},
                                 {"clock", "simulated for asyncspade-a100 and asyncspade-h100"},
                                 {"bars", nlohmann::ordered_json::array()}};
  for (const SpadeBar& b : bars) {
    json["bars"].push_back({{"model", b.model},
                            {"gpu", b.gpu},
                            {"method", b.method},
                            {"tpot_ms", b.tpot_ms},
                            {"idle_ms", b.idle_ms},
                            {"roofline_ms", b.roofline_ms},
                            {"rank_roofline_ms", b.rank_ms},
                            {"kv_gb", b.kv_gb},
                            {"room_gb", b.room_gb},
                            {"peer_gb", b.peer_gb},
                            {"peer_room_gb", b.peer_room_gb},
                            {"fits", b.fits()}});
  }
  return json_text(json, 1) + "\n";
}

}  // namespace tandem::eval

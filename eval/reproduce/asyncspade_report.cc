#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "engine/common/version.h"
#include "eval/predict/row.h"
#include "eval/predict/text.h"
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

/// Appends a row: the pack's cells, and these.
void add_pack(Table& table, const SpadePack& p, const HeadedCells& cells) {
  add_row(table,
          {{"model", p.model},
           {"batch x context", fmt::format("{} x {}K", p.batch, p.context / 1024)},
           {"GPU", p.gpu},
           {"pack", std::to_string(p.layers)}},
          cells);
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
    add_pack(table, r.pack,
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

/// The head of both files.
nlohmann::ordered_json origin(const char* schema) {
  return {{"schema", schema},
          {"tandem_version", version()},
          {"git_commit", git_commit()},
          {"clock", "simulated for asyncspade-a100 and asyncspade-h100"}};
}

}  // namespace

std::string spade_table2_text(const std::vector<SpadeRow>& rows, bool markdown) {
  const auto keeps_up = [](const SpadeTimes& t) { return t.management_ms < t.inference_ms; };
  const auto count = [&](const auto& is_one) { return std::ranges::count_if(rows, is_one); };
  const auto below_published = [](const SpadeRow& r) { return r.ours.times.management_ms < r.pack.inference_ms; };
  const auto error_of = [](const SpadeRow& r) { return r.with_framework.times.inference_ms / r.pack.inference_ms - 1; };
  const auto answer = [](bool yes) { return yes ? "yes" : "NO"; };
  Table table, links;
  double furthest = 0;
  std::map<std::string, double> framework;  // ms by GPU
  for (const SpadeRow& r : rows) {
    const SpadeTimes &bare = r.ours.times, &with = r.with_framework.times;
    if (!r.fitted && std::abs(error_of(r)) > std::abs(furthest)) furthest = error_of(r);
    framework[r.pack.gpu] = r.framework_ms;
    add_pack(table, r.pack,
             {{"inference, published", hundredths(r.pack.inference_ms)},
              {"cache, published", hundredths(r.pack.management_ms)},
              {"inference, simulated", hundredths(bare.inference_ms)},
              {"with framework", hundredths(with.inference_ms)},
              {"its error", r.fitted ? "fitted" : percent(error_of(r))},
              {"cache, simulated", hundredths(bare.management_ms)},
              {"its error", percent(bare.management_ms / r.pack.management_ms - 1)},
              {"transfer, simulated", hundredths(bare.transfer_ms)},
              {"inference, roofline", hundredths(r.roofline.inference_ms)},
              {"cache, roofline", hundredths(r.roofline.management_ms)},
              {"below ours", answer(keeps_up(bare))},
              {"below with framework", answer(keeps_up(with))},
              {"below published", answer(below_published(r))},
              {"idle %, simulated", idle_share(r.ours)},
              {"idle %, with framework", idle_share(r.with_framework)}});
    add_pack(links, r.pack,
             {{"published", fmt::format("{:.1f}", r.pack.bandwidth)},
              {"simulated", fmt::format("{:.1f}", r.bytes.selected * 1e-6 / bare.inference_ms)},
              {"link", whole(r.bytes.selected * 1e-6 / r.roofline.transfer_ms)}});
  }
  const std::string how = fmt::format(
      "inference: the inference rank's work on the layers of a pack; cache: prediction, scores, top-k and gather of "
      "the cache rank; roofline: bytes over the datasheet's HBM bandwidth (weights and selected KV; all keys, and what "
      "is gathered in and out). With framework: one fitted parameter per GPU, the time that the framework of the "
      "published figures adds to a layer of the inference rank ({}), from the published inference of 8B, 8 x 32K, "
      "packs of 6; of the {} other inference times {} are within 10 %, the furthest is {} off. Nothing of the cache "
      "rank is fitted. Cache management takes less than the published inference in {} of {} rows, less than the "
      "simulated one in {}, than the one with the framework in {}, and on the roofline in {}. idle: the device's, mean "
      "over the last 8 of 48 steps.",
      listed(framework, [](const auto& f) { return fmt::format("{:.3f} ms on {}", f.second, f.first); }),
      count([](const SpadeRow& r) { return !r.fitted; }),
      count([&](const SpadeRow& r) { return !r.fitted && std::abs(error_of(r)) <= 0.1; }), percent(furthest),
      count(below_published), rows.size(), count([&](const SpadeRow& r) { return keeps_up(r.ours.times); }),
      count([&](const SpadeRow& r) { return keeps_up(r.with_framework.times); }),
      count([&](const SpadeRow& r) { return keeps_up(r.roofline); }));
  return section("AsyncSpade, Table 2: ms per pack of layers, simulated for asyncspade-a100 and -h100", markdown) +
         text_of(table, markdown) + note(how, markdown) + rates_text(rows, markdown) +
         section("Bandwidth that hides the selection, GB/s", markdown) + text_of(links, markdown) +
         note(
             "published: minimal bandwidth, in the 8B rows 2 x selected K and V of the pack in MiB over the inference "
             "time; simulated: K and V selected, once, over our inference time; link: of the profile.",
             markdown);
}

std::string spade_fig10_text(const std::vector<SpadeBar>& bars, bool markdown) {
  Table table;
  double rank = 0;
  const auto of_room = [](double gb, double room_gb) {
    return fmt::format("{:.1f} of {:.1f}{}", gb, room_gb, gb <= room_gb ? "" : ": NO");
  };
  for (const SpadeBar& bar : bars) {
    const SpadeBar& own = *std::ranges::find_if(bars, [&](const SpadeBar& b) {
      return b.model == bar.model && b.gpu == bar.gpu && b.method.starts_with("asyncspade");
    });
    const bool is_own = &own == &bar;
    if (is_own) rank = std::max(rank, own.rank_ms / own.roofline_ms);
    add_row(table, {{"model", bar.model}, {"GPU", bar.gpu}, {"method", bar.method}},
            {{"TPOT ms, simulated", hundredths(bar.tpot_ms)},
             {"idle ms, simulated", hundredths(bar.idle_ms)},
             {"asyncspade against it, simulated", is_own ? "-" : percent(own.tpot_ms / bar.tpot_ms - 1)},
             {"TPOT ms, roofline", hundredths(bar.roofline_ms)},
             {"asyncspade against it, roofline", is_own ? "-" : percent(own.roofline_ms / bar.roofline_ms - 1)},
             {"published", bar.method == "full"              ? "-50 % at least"
                           : bar.method.starts_with("quest") ? "-20 % at least"
                                                             : "-"},
             {"KV GB of room", of_room(bar.kv_gb, bar.room_gb)},
             {"peer GB of room", is_own ? of_room(bar.peer_gb, bar.peer_room_gb) : "-"}});
  }
  const std::string how = fmt::format(
      "Batch 8, 32K of context, 2,048 selected tokens; means over the last 8 of 48 steps (of 12 where each step is "
      "like the one before). roofline: bytes that the device reads over the datasheet's bandwidth, a cache rank that "
      "always keeps up; its own roofline is up to {:.2f} times that step. published: the claims of section 5.3; the "
      "figure's bars are not given as numbers. KV: on the device, and what it has beside the weights; where that is "
      "not enough (NO) the times are those of a device with more memory. peer: KV of whole pages, selections and query "
      "windows that the simulated cache rank holds, and what its device, which has no weights, has for them.",
      rank);
  return section("AsyncSpade, Figure 10, simulated for asyncspade-a100 and -h100", markdown) +
         text_of(table, markdown) + note(how, markdown);
}

std::string spade_table2_json(const std::vector<SpadeRow>& rows) {
  nlohmann::ordered_json json = origin("tandem-asyncspade-table2-3");
  json["steps"] = 48;
  json["steps_counted"] = 8;
  json["free_parameter"] = {{"name", "framework_ms"},
                            {"meaning", "added to a layer of the inference rank by the testbed's framework"},
                            {"fitted_to", "inference_ms of qwen3-8b, 8 x 32768, pack 6, one per GPU"}};
  json["rows"] = nlohmann::ordered_json::array();
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
  nlohmann::ordered_json json = origin("tandem-asyncspade-fig10-2");
  json["bars"] = nlohmann::ordered_json::array();
  for (const SpadeBar& b : bars)
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
  return json_text(json, 1) + "\n";
}

}  // namespace tandem::eval

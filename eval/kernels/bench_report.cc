// What was measured and checked, as tables and as JSON.
#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "eval/kernels/bench.h"

namespace tandem::eval {
namespace {

// KernelBench and KernelChecks alike: a run that was interrupted, lost its device, or goes on.
void mark_unfinished(nlohmann::ordered_json& json, const auto& run) {
  if (!run.stopped.empty()) json["stopped"] = run.stopped;
  if (run.rows.size() < run.cases) json["unfinished"] = fmt::format("{} of {} cases", run.rows.size(), run.cases);
}
std::string unfinished_text(const auto& run) {
  const std::string stopped = run.stopped.empty() ? "" : "\n" + run.stopped + "\n";
  if (run.rows.size() == run.cases) return stopped;
  return stopped + fmt::format("\nUnfinished: {} of {} cases.\n", run.rows.size(), run.cases);
}

}  // namespace

std::string kernel_bench_text(const KernelBench& bench) {
  std::string text = fmt::format("measured on {}\n\n", bench.machine);
  text += fmt::format("{:<20} {:<48} {:>10} {:>10} {:>10} {:>8} {:>9} {:>6}\n", "kernel", "shape", "us", "least",
                      "most", "GB/s", "GFLOP/s", "share");
  for (const KernelTime& time : bench.rows) {
    if (!time.error.empty()) {
      text += fmt::format("{:<20} {:<48} not measured: {}\n", time.kernel, time.shape, time.error);
      continue;
    }
    const auto rate = [&](double amount) {
      return amount > 0 ? fmt::format("{:.4g}", amount / time.median_us * 1e-3) : std::string();
    };
    text += fmt::format("{:<20} {:<48} {:>10.2f} {:>10.2f} {:>10.2f} {:>8} {:>9} {:>6}{}\n", time.kernel, time.shape,
                        time.median_us, time.least_us, time.most_us, rate(time.bytes), rate(time.flops),
                        time.share >= 0 ? fmt::format("{:.2f}", time.share) : std::string(),
                        !time.disturbed.empty()  ? " *"
                        : !time.no_share.empty() ? " +"
                                                 : "");
  }
  text +=
      bench.target == KernelTarget::cpu
          ? "\nshare: of pure reads of memory by as many threads, in the same rounds; of multiply-adds in registers "
            "for\nmatrix kernels. What fits a cache can be above 1.\n"
          : "\nshare: of a copy within device memory (bytes read and written), in the same rounds; of a bf16 product "
            "of 8192 x 8192 x 8192\nfor matrix kernels; of a copy of 256 MiB between pinned and device memory, the "
            "same way, for what crosses the\nlink (gather, scatter_to_host, merge_from_host), the bytes that cross it "
            "counted once.\nWhat fits the cache can be above 1. A time of a few us is the rate at which the host "
            "starts kernels.\n";
  const auto disturbed = std::find_if(bench.rows.begin(), bench.rows.end(),
                                      [](const KernelTime& time) { return !time.disturbed.empty(); });
  if (disturbed != bench.rows.end())
    text += fmt::format("*: a neighbour was busy ({}), so the times are too long and there is no share.\n",
                        disturbed->disturbed);
  const auto without =
      std::find_if(bench.rows.begin(), bench.rows.end(), [](const KernelTime& time) { return !time.no_share.empty(); });
  if (without != bench.rows.end()) text += fmt::format("+: no share: {}\n", without->no_share);
  if (!bench.no_share.empty()) text += fmt::format("No shares: {}. Run it again on a quiet machine.\n", bench.no_share);
  text += unfinished_text(bench);
  return text;
}

std::string kernel_bench_json(const KernelBench& bench) {
  nlohmann::ordered_json json;
  json["device"] = to_string(bench.target);
  json["measured_on"] = bench.machine;
  if (bench.target == KernelTarget::cpu) json["threads"] = bench.threads;
  if (!bench.no_share.empty()) json["no_share"] = bench.no_share;
  mark_unfinished(json, bench);
  json["kernels"] = nlohmann::ordered_json::array();
  for (const KernelTime& time : bench.rows) {
    nlohmann::ordered_json row;
    row["kernel"] = time.kernel;
    row["shape"] = time.shape;
    if (!time.error.empty()) {
      row["error"] = time.error;
      json["kernels"].push_back(std::move(row));
      continue;
    }
    row["us"] = time.median_us;
    row["least_us"] = time.least_us;
    row["most_us"] = time.most_us;
    row["bytes"] = time.bytes;
    row["flops"] = time.flops;
    if (time.share >= 0) row["share"] = time.share;
    if (!time.no_share.empty()) row["no_share"] = time.no_share;
    if (!time.disturbed.empty()) row["disturbed"] = time.disturbed;
    json["kernels"].push_back(std::move(row));
  }
  return json_text(json, 2) + "\n";
}

std::string kernel_check_text(const KernelChecks& checks) {
  std::string text;
  for (const KernelCheck& one : checks.rows)
    text += fmt::format("{:<20} {:<70} {}\n", one.kernel, one.shape,
                        !one.error.empty()  ? "not checked: " + one.error
                        : one.wrong.empty() ? "right"
                                            : one.wrong);
  return text + unfinished_text(checks);
}

std::string kernel_check_json(const KernelChecks& checks) {
  nlohmann::ordered_json json;
  json["device"] = to_string(checks.target);
  json["checked_on"] = checks.machine;
  mark_unfinished(json, checks);
  json["kernels"] = nlohmann::ordered_json::array();
  for (const KernelCheck& one : checks.rows) {
    nlohmann::ordered_json row = {{"kernel", one.kernel}, {"shape", one.shape}};
    if (one.error.empty()) {
      row["wrong"] = one.wrong;
    } else {
      row["error"] = one.error;
    }
    json["kernels"].push_back(std::move(row));
  }
  return json_text(json, 2) + "\n";
}

}  // namespace tandem::eval

#include "engine/runtime/decode_attention.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_weights.h"
#include "engine/kernels/merge.h"

namespace tandem {
namespace {
constexpr std::size_t kNoScores = ~std::size_t{0};
}

std::uint32_t StaticTokens::count() const {
  return std::accumulate(ranges.begin(), ranges.end(), 0u,
                         [](std::uint32_t sum, const Range& r) { return sum + (r.end - r.begin); });
}

DecodeAttention::DecodeAttention(Forward& forward, Device& device, ThreadPool& pool, KvStore& kv,
                                 SequenceStores& stores, const ScoreProcess* process)
    : forward_(forward),
      device_(device),
      pool_(pool),
      kv_(kv),
      stores_(stores),
      process_(process),
      compute_(device.lane(LaneKind::device_compute)),
      h2d_(device.lane(LaneKind::h2d)),
      d2h_(device.lane(LaneKind::d2h)),
      workers_(device.lane(LaneKind::host_workers)) {
  const ModelShape& s = forward.shape();
  const std::size_t heads = std::size_t{forward.max_batch()} * s.q_heads;
  const std::size_t values = heads * s.head_dim * sizeof(float), sums = heads * sizeof(float);
  device_part_ = device.allocate_device(values, "device partial");
  device_lse_ = device.allocate_device(sums, "device lse");
  landed_part_ = device.allocate_device(values, "host partial on the device");
  landed_lse_ = device.allocate_device(sums, "host lse on the device");
  host_query_ = device.allocate_host(values, "query on the host");
  host_part_ = device.allocate_host(values, "host partial");
  host_lse_ = device.allocate_host(sums, "host lse");
  host_attended_ = device.allocate_host(forward.max_batch() * 2 * sizeof(std::uint64_t), "host attended");
  attended_.resize(forward.max_batch());
}

void DecodeAttention::begin_layer(Event query_ready) {
  query_ready_ = query_ready;
  query_on_host_ = Event{};
}

Event DecodeAttention::query_on_host(const LayerContext& context) {
  if (query_on_host_.valid()) return query_on_host_;
  const auto rows = static_cast<std::uint32_t>(context.batch.size());
  const std::size_t bytes = std::size_t{rows} * context.shape.q_heads * context.shape.head_dim * sizeof(float);
  Op op;
  op.name = "query to host";
  op.kind = Kind::copy;
  op.cause = Cause::transfer;
  op.layer = context.layer;
  op.cost.d2h = bytes;
  op.access = {forward_.q().reads(0, rows), host_query_.writes(0, rows)};
  op.after = {query_ready_};
  op.body = [this, bytes](BodyContext& ctx) {
    std::memcpy(ctx.write<float>(host_query_), ctx.read<float>(forward_.q()), bytes);
  };
  query_on_host_ = device_.submit(d2h_, std::move(op));
  return query_on_host_;
}

void DecodeAttention::check_plan(const LayerContext& context, const AttendPlan& plan) const {
  std::vector<bool> covered(context.batch.size());
  for (const AttendItem& item : plan.items) {
    TANDEM_CHECK(item.row < context.batch.size(), "a plan names row {} of a batch of {}", item.row,
                 context.batch.size());
    covered[item.row] = true;
    if (const auto* fixed = std::get_if<StaticTokens>(&item.pages.source)) {
      std::uint32_t at = 0;
      for (const Range& r : fixed->ranges) {
        TANDEM_CHECK(r.begin >= at && r.begin < r.end && r.end <= context.batch[item.row]->tokens,
                     "a plan names tokens [{}, {}) of {} (ranges must be sorted, disjoint, not empty)", r.begin, r.end,
                     context.batch[item.row]->tokens);
        at = r.end;
      }
    } else {
      TANDEM_CHECK(item.side == Side::host, "a selection made on the host is attended there");
      TANDEM_CHECK(!item.average, "only attention on the device goes into an average");
    }
  }
  TANDEM_CHECK(std::all_of(covered.begin(), covered.end(), [](bool c) { return c; }),
               "a plan leaves a row without attention");
}

void DecodeAttention::append_static_runs(const SequenceState& sequence, std::uint32_t layer, const StaticTokens& tokens,
                                         Tier tier, std::vector<PageRun>& runs) const {
  for (const Range& range : tokens.ranges) {
    for (std::uint32_t token = range.begin; token < range.end;) {
      const std::uint32_t block = token / kPageTokens, first = token % kPageTokens;
      const std::uint32_t count = std::min(kPageTokens - first, range.end - token);
      const std::uint32_t slot = kv_.slot(sequence.id, layer, block, tier);
      TANDEM_CHECK(slot != KvStore::kNoSlot, "a plan attends block {} of layer {}, which is not on that side", block,
                   layer);
      runs.push_back({slot, first, count, 0xFFFFFFFFu});
      token += count;
    }
  }
}

std::vector<DecodeAttention::Emitted> DecodeAttention::plan_emission(const LayerContext& context,
                                                                     std::span<const AttendItem* const> items) {
  std::vector<Emitted> emitted;
  std::size_t floats = 0;
  for (const AttendItem* item : items) {
    if (!item->average) continue;
    const std::vector<Range>& ranges = std::get<StaticTokens>(item->pages.source).ranges;
    const auto of_row = [item](const AttendItem* other) { return other->row == item->row; };
    TANDEM_CHECK(ranges.size() == 1 && ranges[0].end == context.batch[item->row]->tokens && item->kv_heads.begin == 0 &&
                     item->kv_heads.end >= context.shape.kv_heads &&
                     std::count_if(items.begin(), items.end(), of_row) == 1,
                 "weights are averaged over the one device item of a row, all heads, up to the newest token");
    AttentionAverage& average = stores_.averages.get(item->average->id);
    TANDEM_CHECK(ranges[0].end - ranges[0].begin <= average.ring, "a window of {} tokens in a ring of {}",
                 ranges[0].end - ranges[0].begin, average.ring);
    emitted.push_back({item->row, &average, ranges[0], floats});
    floats += std::size_t{context.shape.q_heads} * average.ring;
  }
  if (floats * sizeof(float) > scores_.bytes()) scores_ = device_.allocate_device(floats * sizeof(float), "scores");
  return emitted;
}

void DecodeAttention::submit_device(const LayerContext& context, std::span<const AttendItem* const> items,
                                    const std::vector<Emitted>& emitted, const DeviceBuffer& out,
                                    const DeviceBuffer& lse) {
  const ModelShape& shape = context.shape;
  const auto rows = static_cast<std::uint32_t>(context.batch.size());
  std::vector<HeadWork> work;  // every (row, KV head), so that rows without device items give the empty partial
  for (std::uint32_t row = 0; row < rows; ++row) {
    for (std::uint32_t head = 0; head < shape.kv_heads; ++head) work.push_back({row, head, {}});
  }
  Op op;
  op.name = "device attention";
  op.layer = context.layer;
  op.cost.work = Work::attention;
  op.access = {forward_.q().reads(0, rows), out.writes(0, rows)};
  if (lse) op.access.push_back(lse.writes(0, rows));
  for (const AttendItem* item : items) {
    const SequenceState& sequence = *context.batch[item->row];
    const auto& tokens = std::get<StaticTokens>(item->pages.source);
    const Range heads{item->kv_heads.begin, std::min(item->kv_heads.end, shape.kv_heads)};
    for (const Range& r : tokens.ranges) {
      kv_.append_access(sequence.id, context.layer, {r.begin / kPageTokens, blocks_for(r.end)}, Tier::device, heads,
                        false, op.access);
    }
    const std::uint64_t count = std::uint64_t{tokens.count()} * (heads.end - heads.begin);
    attended_[item->row].tokens[static_cast<int>(Side::device)] += count;
    op.cost.hbm += count * 2 * kv_.shape().vector_bytes();
    op.cost.flops += count * 4 * shape.group() * shape.head_dim;
    for (std::uint32_t head = heads.begin; head < heads.end; ++head) {
      append_static_runs(sequence, context.layer, tokens, Tier::device, work[item->row * shape.kv_heads + head].runs);
    }
  }
  op.cost.hbm += std::uint64_t{2} * rows * shape.q_heads * shape.head_dim * sizeof(float);
  std::vector<std::size_t> score_offset(rows, kNoScores);
  for (const Emitted& e : emitted) {
    score_offset[e.row] = e.offset;
    op.cost.hbm += std::uint64_t{shape.q_heads} * (e.tokens.end - e.tokens.begin) * sizeof(float);
  }
  if (!emitted.empty()) op.access.push_back(scores_.writes());
  op.body = [this, shape, work = std::move(work), score_offset = std::move(score_offset), scores = scores_, out,
             lse](BodyContext& ctx) {
    const char* pages = ctx.read<char>(kv_.device_buffer());
    const AttentionShape group{shape.group(), shape.head_dim, kv_.shape().type};
    const float* query = ctx.read<float>(forward_.q());
    float* o = ctx.write<float>(out);
    std::vector<float> discarded(lse ? 0 : work.size() * shape.group());
    float* sums = lse ? ctx.write<float>(lse) : discarded.data();
    pool_.parallel_for(work.size(), [&](std::size_t i) {
      std::vector<KvSpan> spans;
      spans.reserve(work[i].runs.size());
      for (const PageRun& run : work[i].runs) {
        const std::size_t at = run.first * kv_.shape().vector_bytes();
        spans.push_back({pages + kv_.k_offset(run.slot, work[i].kv_head) + at,
                         pages + kv_.v_offset(run.slot, work[i].kv_head) + at, run.tokens, run.head_mask});
      }
      const std::size_t head = std::size_t{work[i].row} * shape.q_heads + work[i].kv_head * shape.group();
      const float* q = query + head * shape.head_dim;
      if (score_offset[work[i].row] == kNoScores) {
        partial_attention(q, spans, group, o + head * shape.head_dim, sums + head);
        return;
      }
      std::size_t tokens = 0;
      for (const KvSpan& span : spans) tokens += span.tokens;
      partial_attention_with_scores(
          q, spans, group, o + head * shape.head_dim, sums + head,
          ctx.write<float>(scores) + score_offset[work[i].row] + work[i].kv_head * shape.group() * tokens);
    });
  };
  device_.submit(compute_, std::move(op));
}

void DecodeAttention::submit_averages(const LayerContext& context, std::vector<Emitted> emitted) {
  const ModelShape& shape = context.shape;
  const std::uint32_t layer = context.layer;
  Op op;
  op.name = "update averages";
  op.layer = layer;
  op.access = {scores_.reads()};
  for (const Emitted& e : emitted) {
    AttentionAverage& average = *e.average;
    const std::uint64_t values = std::uint64_t{shape.q_heads} * (e.tokens.end - e.tokens.begin);
    op.cost.hbm += 3 * values * sizeof(float);
    op.cost.flops += 10 * values;
    op.access.push_back(device_lse_.reads(e.row, e.row + 1));
    average.append_window_access(layer, e.tokens, true, op.access);
    if ((e.tokens.end - 1) % kPageTokens == 0) {  // a page of the ring is used again
      if (const Event copied = average.copied_page(layer, e.tokens.end - 1); copied.valid()) op.after.push_back(copied);
    }
  }
  op.body = [this, shape, layer, emitted, scores = scores_](BodyContext& ctx) {
    const float* from = ctx.read<float>(scores);
    pool_.parallel_for(emitted.size() * shape.q_heads, [&](std::size_t i) {
      const Emitted& e = emitted[i / shape.q_heads];
      const auto head = static_cast<std::uint32_t>(i % shape.q_heads);
      const std::uint32_t tokens = e.tokens.end - e.tokens.begin;
      const float* row = from + e.offset + std::size_t{head} * tokens;
      const float lse = ctx.read<float>(device_lse_)[std::size_t{e.row} * shape.q_heads + head];
      float* window = ctx.write<float>(e.average->window) + e.average->window_offset(layer, head);
      window[(e.tokens.end - 1) % e.average->ring] = 0;  // the step's own token is new
      e.average->for_each_run(e.tokens, [&](std::uint32_t token, std::uint32_t at, std::uint32_t count) {
        blend_weights(row + (token - e.tokens.begin), lse, count, 1 - e.average->share, e.average->share, window + at);
      });
    });
  };
  const Event done = device_.submit(compute_, std::move(op));
  for (const Emitted& e : emitted) e.average->updated[layer] = done;
}

void DecodeAttention::submit_merge(const LayerContext& context, std::span<const std::uint32_t> host_rows,
                                   Event host_done) {
  const ModelShape& shape = context.shape;
  const auto rows = static_cast<std::uint32_t>(context.batch.size());
  const std::size_t width = std::size_t{shape.q_heads} * shape.head_dim;
  Op copy;
  copy.name = "host partials to device";
  copy.kind = Kind::copy;
  copy.cause = Cause::transfer;
  copy.layer = context.layer;
  copy.cost.h2d = host_rows.size() * (width + shape.q_heads) * sizeof(float);
  copy.cost.pieces = static_cast<std::uint32_t>(2 * host_rows.size());
  for (const std::uint32_t row : host_rows) {
    for (const Access& a : {host_part_.reads(row, row + 1), host_lse_.reads(row, row + 1),
                            landed_part_.writes(row, row + 1), landed_lse_.writes(row, row + 1)}) {
      copy.access.push_back(a);
    }
  }
  copy.after = {host_done};
  std::vector<bool> on_host(rows);
  for (const std::uint32_t row : host_rows) on_host[row] = true;
  copy.body = [this, shape, width,
               list = std::vector<std::uint32_t>(host_rows.begin(), host_rows.end())](BodyContext& ctx) {
    for (const std::uint32_t row : list) {
      std::copy_n(ctx.read<float>(host_part_) + row * width, width, ctx.write<float>(landed_part_) + row * width);
      std::copy_n(ctx.read<float>(host_lse_) + std::size_t{row} * shape.q_heads, shape.q_heads,
                  ctx.write<float>(landed_lse_) + std::size_t{row} * shape.q_heads);
    }
  };
  const Event landed = device_.submit(h2d_, std::move(copy));

  Op merge;
  merge.name = "merge";
  merge.layer = context.layer;
  merge.cost.hbm = std::uint64_t{3} * rows * width * sizeof(float);
  merge.cost.flops = std::uint64_t{3} * rows * width;
  merge.access = {device_part_.reads(0, rows), device_lse_.reads(0, rows), forward_.attention().writes(0, rows)};
  for (const std::uint32_t row : host_rows) {
    merge.access.push_back(landed_part_.reads(row, row + 1));
    merge.access.push_back(landed_lse_.reads(row, row + 1));
  }
  merge.after = {landed};
  merge.body = [this, shape, rows, width, on_host](BodyContext& ctx) {
    for (std::uint32_t row = 0; row < rows; ++row) {
      const float* parts[2] = {ctx.read<float>(device_part_) + row * width,
                               ctx.read<float>(landed_part_) + row * width};
      const float* sums[2] = {ctx.read<float>(device_lse_) + std::size_t{row} * shape.q_heads,
                              ctx.read<float>(landed_lse_) + std::size_t{row} * shape.q_heads};
      merge_partials(parts, sums, on_host[row] ? 2 : 1, shape.q_heads, shape.head_dim,
                     ctx.write<float>(forward_.attention()) + row * width, nullptr);
    }
  };
  device_.submit(compute_, std::move(merge));
}

void DecodeAttention::run(const LayerContext& context, const AttendPlan& plan) {
  check_plan(context, plan);
  std::vector<const AttendItem*> on_device;
  std::vector<std::vector<const AttendItem*>> on_host(context.batch.size());
  for (const AttendItem& item : plan.items) {
    if (item.side == Side::device) {
      on_device.push_back(&item);
    } else {
      on_host[item.row].push_back(&item);
    }
  }
  std::vector<std::uint32_t> host_rows;
  for (std::uint32_t row = 0; row < on_host.size(); ++row) {
    if (!on_host[row].empty()) host_rows.push_back(row);
  }
  const std::vector<Emitted> emitted = plan_emission(context, on_device);
  if (host_rows.empty()) {  // the common case of methods without a host part: straight into the layer's attention
    submit_device(context, on_device, emitted, forward_.attention(), emitted.empty() ? DeviceBuffer{} : device_lse_);
    if (!emitted.empty()) submit_averages(context, emitted);
    return;
  }
  const Event host_done = submit_host(context, on_host);
  submit_device(context, on_device, emitted, device_part_, device_lse_);
  if (!emitted.empty()) submit_averages(context, emitted);  // while the host is at work
  device_.end_segment();                                    // a captured segment must not contain a wait for the host
  device_.begin_segment("after host partials");
  submit_merge(context, host_rows, host_done);
}

std::vector<DecodeAttention::Attended> DecodeAttention::take_attended(std::uint32_t rows) {
  std::vector<Attended> out(attended_.begin(), attended_.begin() + rows);
  const auto host = device_.host_write<std::uint64_t>(host_attended_, {0, rows});
  for (std::uint32_t row = 0; row < rows; ++row) {
    out[row].tokens[static_cast<int>(Side::host)] = std::exchange(host[2 * row], 0);
    out[row].packed_bytes = std::exchange(host[2 * row + 1], 0);
    attended_[row] = {};
  }
  return out;
}

}  // namespace tandem

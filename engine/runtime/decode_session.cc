#include "engine/runtime/decode_session.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "engine/common/error.h"
#include "engine/common/mapped_file.h"
#include "engine/device/launch_context.h"
#include "engine/runtime/copy_op.h"
#include "engine/runtime/hook.h"
#include "engine/runtime/limits.h"
#include "engine/runtime/near_tie.h"

namespace tandem {
namespace {

std::string place_of(const char* hook, const SequenceState& sequence) {
  return fmt::format("{} of request {}", hook, sequence.request);
}

}  // namespace

DecodeSession::DecodeSession(const Model& model, Device& device, ThreadPool& pool, const EngineOptions& engine,
                             KvStore& kv, Forward& forward, Method& method, std::span<const DecodeRequest> requests,
                             Finished finished)
    : model_(model),
      device_(device),
      pool_(pool),
      engine_(engine),
      kv_(kv),
      forward_(forward),
      method_(method),
      finished_(finished),
      draws_(engine.workload ? std::make_unique<BatchDraws>(pool, *engine.workload, forward.shape()) : nullptr),
      attention_(forward, device, pool, kv, stores_, draws_.get()),
      ops_(parts_),
      parts_{forward, device, pool, kv, stores_, attention_, draws_.get(), engine.peer, engine.peer_patience, ops_} {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Prefix& prefix = *requests[i].prefix;
    auto a = std::make_unique<Active>();
    a->request = i;
    a->state.id = kv_.fork(prefix.sequence);
    a->state.request = static_cast<std::uint32_t>(i);
    a->state.tokens = a->state.prefix_tokens = kv_.tokens(a->state.id);
    a->state.max_tokens = a->state.tokens + requests[i].max_new_tokens;
    a->next = prefix.prompt.back();
    a->max_new = requests[i].max_new_tokens;
    a->stop_tokens = requests[i].stop_tokens;
    parts_.queries[a->state.id] = prefix.queries;
    parts_.sums[a->state.id] = prefix.sums;
    waiting_.push_back(std::move(a));
  }
  if (draws_ == nullptr) return;
  std::vector<std::uint64_t> lengths;
  lengths.reserve(waiting_.size());
  for (const std::unique_ptr<Active>& a : waiting_)
    lengths.push_back(std::uint64_t{a->state.prefix_tokens} << 32 | a->state.max_tokens);
  draws_->share(lengths, engine_.drawn_sequences);
}

DecodeSession::~DecodeSession() {
  device_.drain_after_error();  // bodies in flight still refer to this session
  kv_.all_done();
  for (const auto* list : {&active_, &waiting_})
    for (const auto& a : *list)
      if (a != nullptr) kv_.destroy(a->state.id);
}

std::vector<SequenceState*> DecodeSession::batch() {
  std::vector<SequenceState*> rows;
  rows.reserve(active_.size());
  for (const auto& a : active_) rows.push_back(&a->state);
  return rows;
}

/// Submits an operation whose time is a number of the hardware profile; none where that is 0.
void DecodeSession::fixed_time(LaneKind lane, const char* name, Cause cause, std::uint32_t layer, Nanos ns) {
  if (ns == 0) return;
  Op op(name, cause, layer);
  op.kind = lane == LaneKind::control ? Kind::control : Kind::compute;
  op.cost.work = Work::fixed;
  op.cost.fixed_ns = ns;
  device_.submit(device_.lane(lane), std::move(op));
}

/// The method has looked at what was kept of a prompt: nothing reads it any more.
void DecodeSession::prompt_seen(Active& a) {
  a.prompt_bytes = parts_.prompt_bytes(a.state.id, method_.needs(forward_.shape()));
  parts_.queries.erase(a.state.id);  // the memory goes back where no prefix holds it
  parts_.sums.erase(a.state.id);
}

/// Counts what a sequence holds now among its peaks; `more` is besides what the stores know.
void DecodeSession::count_bytes(const Active& a, std::size_t device_more, std::size_t host_more) {
  for (const Tier tier : {Tier::device, Tier::host}) {
    std::size_t& peak = result_.sequences[a.request].peak_kv_bytes[static_cast<int>(tier)];
    const std::size_t more = tier == Tier::host ? host_more : device_more + a.state.device_bytes;
    peak = std::max(peak, kv_.bytes(a.state.id, tier) + stores_.bytes_of(a.state.id, tier) +
                              parts_.bytes_of(a.state.id, tier) + more);
  }
  std::size_t& peer = result_.sequences[a.request].peak_peer_bytes;
  peer = std::max(peer, parts_.peer_bytes_of(a.state.id));
}

/// What the method does before a sequence's first step. Returns what that comes to on the compute lane.
std::vector<Event> DecodeSession::prepare() {
  std::vector<Event> ready;
  for (const auto& a : active_) {
    in_hook(
        method_, [&] { return place_of("context_ready", a->state); }, [&] { method_.context_ready(a->state, ops_); });
    prompt_seen(*a);
    const Event copied = copy_shared_tail(device_, kv_, a->state.id);
    if (copied.valid()) wait_for(ready, copied);
  }
  return ready;
}

/// Everything before the first step: all waiting sequences become the batch, with the tokens they go on from.
void DecodeSession::begin() {
  for (const std::unique_ptr<Active>& a : waiting_) {  // before anything changes
    TANDEM_CHECK(a != nullptr, "a released sequence cannot go on");
    if (a->state.tokens + a->max_new > a->state.max_tokens)
      check_positions(model_, std::size_t{a->state.tokens} + 1, a->max_new);
  }
  result_ = {};
  result_.sequences.resize(waiting_.size());
  attended_.assign(waiting_.size(), {});
  std::vector<std::int32_t> tokens;
  for (std::unique_ptr<Active>& a : waiting_) {
    const std::uint32_t announced = std::exchange(
        a->state.max_tokens, std::max(a->state.max_tokens, a->state.tokens + a->max_new));  // a kept one goes on
    a->state.row = a->last_row = static_cast<std::uint32_t>(active_.size());
    tokens.push_back(a->next);
    active_.push_back(std::move(a));
    SequenceState& state = active_.back()->state;
    if (prepared_ && state.max_tokens > announced)
      in_hook(
          method_, [&] { return place_of("goes_on", state); }, [&] { method_.goes_on(state, ops_); });
  }
  std::vector<Event> ready;
  if (!prepared_) ready = prepare();
  prepared_ = true;
  for (const auto& a : active_) count_bytes(*a, std::exchange(a->prompt_bytes, 0), 0);
  uploaded_ = forward_.upload_tokens(tokens);
  wait_for(ready, uploaded_);
  for (const Event& asked : parts_.last_asked) wait_for(ready, asked);
  // The setup ends when all that the methods asked for is done: a measuring point on the control lane that nothing
  // waits for.
  Op done("context ready", Cause::scheduler);
  done.kind = Kind::wait;
  done.cost.work = Work::fixed;
  done.after = std::move(ready);
  device_.end_step(Device::kSetupStep, device_.submit(device_.lane(LaneKind::control), std::move(done)));
}

Event DecodeSession::attend_layers(std::uint32_t step) {
  const std::vector<SequenceState*> rows = batch();
  std::vector<Event> recycled;
  std::vector<std::uint32_t> source, positions;
  for (const auto& a : active_) {
    positions.push_back(a->state.tokens);
    source.push_back(a->last_row);
    kv_.grow(a->state.id, 1, recycled);
    ++a->state.tokens;
  }
  Event last = forward_.embed(std::move(source), step == 0 ? std::vector<Event>{uploaded_} : std::vector<Event>{});
  for (std::uint32_t layer = 0; layer < forward_.shape().layers; ++layer) {
    const LayerContext context{step, layer, rows, forward_.shape()};
    last = in_hook(
        method_, [&] { return fmt::format("step {}, layer {}", step, layer); },
        [&] { return attend_layer(context, positions, layer == 0 ? recycled : std::vector<Event>{}); });
  }
  return last;
}

Event DecodeSession::attend_layer(const LayerContext& context, const std::vector<std::uint32_t>& positions,
                                  std::vector<Event> recycled) {
  method_.before_layer(context, ops_);
  std::vector<KvTarget> targets;
  for (std::uint32_t row = 0; row < positions.size(); ++row) {
    const std::uint32_t block = positions[row] / kPageTokens;
    targets.push_back(
        {kv_.slot(context.batch[row]->id, context.layer, block, Tier::device), positions[row] % kPageTokens});
  }
  // The control thread's own code of a layer, and what a slower framework than this engine adds. The device has nothing
  // else meanwhile; the framework's time counts as busy, as it does where such a framework is measured.
  fixed_time(LaneKind::control, kEngineCode, Cause::launch, context.layer, engine_.control_layer_ns);
  fixed_time(LaneKind::device_compute, kFramework, Cause::none, context.layer, engine_.layer_ns);
  const Event query =
      forward_.qkv(Forward::Phase::decode, context.layer, positions, std::move(targets), std::move(recycled));
  for (std::uint32_t row = 0; row < positions.size(); ++row) {
    const std::uint32_t block = positions[row] / kPageTokens;
    kv_.set_filled(context.batch[row]->id, context.layer, {block, block + 1}, Tier::device, query);
  }
  attention_.begin_layer(query);
  fixed_time(LaneKind::control, kPolicy, Cause::scheduler, context.layer, engine_.policy_ns);
  attention_.run(context, method_.plan_attend(context, ops_));
  const Event last =
      forward_.finish_layer(Forward::Phase::decode, context.layer, static_cast<std::uint32_t>(positions.size()));
  parts_.last_reader = last;
  method_.after_layer(context, ops_);
  return last;
}

void DecodeSession::step(std::uint32_t step) {
  const auto rows = static_cast<std::uint32_t>(active_.size());
  std::vector<std::int32_t> forced;
  if (!options_->forced.empty())
    for (const auto& a : active_) forced.push_back(options_->forced[a->request].at(step));
  std::vector<Forward::Draw> draws;  // of the tokens behind those that this step takes in
  if (!options_->sampling.empty())
    for (const auto& a : active_) draws.push_back({options_->sampling[a->request], a->state.tokens + 1});
  try {
    device_.begin_segment("decode step");
    attend_layers(step);  // ends this segment and begins others where the device waits for the host
    const bool drawn = !draws.empty();
    const Event sampled = forward_.sample(rows, std::move(forced), std::move(draws));
    const Event on_host = forward_.download_top(rows, !options_->forced.empty(), drawn, sampled);
    device_.end_segment();
    device_.end_step(step, on_host);
  } catch (...) {
    if (device_.in_segment()) device_.end_segment();  // so that the device stays usable
    throw;
  }
}

void DecodeSession::collect(std::uint32_t step) {
  const auto rows = static_cast<std::uint32_t>(active_.size());
  const auto top = device_.host_read<TopTwo>(forward_.host_top(), {0, rows});
  std::span<const std::int32_t> drawn;
  if (!options_->sampling.empty()) drawn = device_.host_read<std::int32_t>(forward_.host_drawn(), {0, rows});
  const std::vector<DecodeAttention::Attended> attended = attention_.take_attended(rows);
  const ModelConfig& c = model_.config;
  if (options_->logits != nullptr) {
    std::vector<float> logits(std::size_t{rows} * c.vocab);
    Op op("keep logits");
    op.kind = Kind::copy;
    op.access = {forward_.logits().reads(0, rows)};
    op.body = [this, &logits](BodyContext& ctx) {
      std::copy_n(ctx.read<float>(forward_.logits()), logits.size(), logits.begin());
    };
    op.launch = [&](LaunchContext& ctx) {
      cuda_copy(logits.data(), ctx.read<float>(forward_.logits()), logits.size() * sizeof(float), ctx.stream());
    };
    device_.host_wait(device_.submit(device_.lane(LaneKind::device_compute), std::move(op)));
    options_->logits->push_back(std::move(logits));
  }
  if (options_->host_tokens != nullptr) {
    std::vector<std::uint64_t>& tokens = options_->host_tokens->emplace_back();
    for (const DecodeAttention::Attended& row : attended)
      tokens.insert(tokens.end(), row.host_tokens.begin(), row.host_tokens.end());
  }
  for (std::uint32_t row = 0; row < rows; ++row) {
    if (std::isfinite(top[row].best_logit)) continue;
    throw_run_error(
        "The logits of step {} are not finite: the weights of model '{}' hold NaN or infinity, or a product "
        "overflowed.",
        step, model_.name);
  }
  std::vector<std::pair<std::size_t, std::int32_t>> said;  // told once the bookkeeping is done: the callback may throw
  std::vector<bool> goes_on(rows);
  for (std::uint32_t row = 0; row < rows; ++row) {
    const std::unique_ptr<Active>& a = active_[row];
    DecodedSequence& out = result_.sequences[a->request];
    out.steps.push_back(step);
    count_bytes(*a, 0, attended[row].packed_bytes);
    for (std::size_t side = 0; side < 2; ++side) {
      // Rounded once, not in every step: heads may attend different numbers of tokens.
      std::uint64_t& all = attended_[a->request][side];
      const std::uint64_t lists = std::uint64_t{c.layers} * c.kv_heads;
      all += attended[row].tokens[side];
      out.attended[side] = (all + lists / 2) / lists;
      out.tasks[side] += attended[row].tasks[side];
    }
    if (!options_->forced.empty())
      out.log_probabilities.push_back(device_.host_read<double>(forward_.host_log_probability(), {row, row + 1})[row]);
    out.top.push_back(top[row]);
    const float margin = top[row].best_logit - top[row].second_logit;
    const bool greedy = drawn.empty() || options_->sampling[a->request].temperature == 0;
    if (greedy && draws_ == nullptr && margin < near_tie_margin(engine_.precision))
      out.near_ties.push_back({static_cast<std::uint32_t>(out.tokens.size()), margin});
    const std::int32_t token = !options_->forced.empty() ? options_->forced[a->request][step]
                               : drawn.empty()           ? top[row].best
                                                         : drawn[row];
    const auto among = [token](const std::vector<std::int32_t>& stops) {
      return std::ranges::find(stops, token) != stops.end();
    };
    const bool stop =
        options_->forced.empty() && (among(c.stop_tokens) || (!out.tokens.empty() && among(a->stop_tokens)));
    if (stop) {
      out.stopped = true;
      out.stop_token = token;
    } else {
      out.tokens.push_back(token);
      said.emplace_back(a->request, token);
    }
    a->next = token;
    goes_on[row] = !stop && out.tokens.size() < a->max_new;
  }
  // Sequences that are done give their pages back now. The step has ended, but what the method asked for on the side,
  // a move to the host for example, may still use them.
  // Such a wait may throw: until then every sequence stays where the destructor finds it.
  if (std::ranges::find(goes_on, false) != goes_on.end())
    for (const Event& e : parts_.last_asked) device_.host_wait(e);
  std::vector<std::unique_ptr<Active>> still;
  for (std::uint32_t row = 0; row < rows; ++row) {
    std::unique_ptr<Active>& a = active_[row];
    if (goes_on[row]) {
      a->last_row = row;
      a->state.row = static_cast<std::uint32_t>(still.size());
      still.push_back(std::move(a));
      continue;
    }
    if (finished_ == Finished::keep) {
      waiting_[a->request] = std::move(a);
      continue;
    }
    stores_.destroy_of(a->state.id);
    parts_.forget(a->state.id);
    kv_.destroy(a->state.id);
  }
  active_ = std::move(still);
  if (!options_->on_token) return;
  for (const auto& [request, token] : said) options_->on_token(request, token);
}

DecodeResult DecodeSession::decode(const DecodeOptions& options) {
  TANDEM_CHECK(options.sampling.empty() || (options.sampling.size() == waiting_.size() && options.forced.empty()),
               "{} ways of sampling for {} requests", options.sampling.size(), waiting_.size());
  for (const Sampling& how : options.sampling) check_sampling(how);
  TANDEM_CHECK(options.trace_steps > 0, "a trace of no step");
  options_ = &options;
  device_.drain();
  kv_.all_done();
  begin();
  for (std::uint32_t n = 0; !active_.empty(); ++n) {
    check_going_on(engine_);
    step(n);
    collect(n);
    const std::vector<SequenceState*> rows = batch();
    in_hook(
        method_, [&] { return fmt::format("after_step of step {}", n); },
        [&] {
          method_.after_step({n, rows, forward_.shape()}, ops_);
        });
    if ((n + 1) % options.trace_steps == 0) drain();
  }
  options_ = nullptr;
  for (std::uint32_t i = 0; i < result_.sequences.size(); ++i)
    result_.sequences[i].drawn_as = draws_ == nullptr ? i : draws_->drawn_as(i);
  drain();
  MappedFile::check_all();
  return std::move(result_);
}

void DecodeSession::drain() {
  Trace trace = device_.drain();
  kv_.all_done();
  if (result_.trace.lanes.empty()) {
    result_.trace = std::move(trace);
    result_.idle = account_idle(result_.trace);
  } else {
    append_idle(result_.idle, account_idle(trace));
  }
}

}  // namespace tandem

#include "engine/runtime/engine.h"

#include <algorithm>

#include "engine/common/error.h"
#include "engine/common/mapped_file.h"
#include "engine/runtime/copy_op.h"
#include "engine/runtime/decode_session.h"
#include "engine/runtime/kv_offload.h"
#include "engine/runtime/limits.h"

namespace tandem {
namespace {

constexpr const char* kKeepColumnSums = "keep column sums";

/// Times of chunks that ended at `ends`, since `begin`. What made column sums is told apart from the rest of a prefill,
/// which takes as long as one without them.
std::vector<PrefillTimes> times_of(const Trace& trace, Nanos begin, std::span<const Nanos> ends) {
  std::vector<PrefillTimes> times;
  times.reserve(ends.size());
  for (const Nanos end : ends) times.push_back({end - begin, 0});
  for (const TraceRecord& record : trace.records) {
    const std::string_view name = record.name;
    if (name != Forward::kColumnSums && name != kKeepColumnSums) continue;
    for (std::size_t i = 0; i < ends.size(); ++i)
      if (record.end <= ends[i] || i + 1 == ends.size()) times[i].sums_ns += record.end - record.start;
  }
  return times;
}

}  // namespace

Engine::Engine(const Model& model, Device& device, ThreadPool& pool, EngineOptions options)
    : model_(model), device_(device), pool_(pool), options_(std::move(options)) {
  TANDEM_CHECK(device.shapes_only() == (options_.workload != nullptr), "shapes alone are simulated under a workload");
  if (options_.max_batch == 0) throw_input_error("The batch size is 0: give at least 1.");
  if (options_.prefill_chunk == 0) throw_input_error("The prefill chunk is 0 tokens: give at least 1.");
  const ModelConfig& c = model.config;
  kv_ = std::make_unique<KvStore>(device, KvShape{c.layers, c.kv_heads, c.head_dim, options_.precision}, options_.kv);
  forward_ = std::make_unique<Forward>(model, device, pool, *kv_, std::max(options_.prefill_chunk, options_.max_batch),
                                       options_.max_batch, options_.score_floats);
  cache_ = make_prefix_cache(options_, device, *kv_, forward_->shape());
}

Engine::~Engine() {
  try {
    device_.drain();  // bodies in flight refer to this engine
  } catch (const std::exception&) {
    // The error was thrown at the wait that needed it; a destructor has nobody to tell.
  }
}

void Engine::observe(ForwardObserver* observer) {
  device_.drain();
  forward_->observe(observer);
}

void Engine::check_prompt(std::span<const std::int32_t> prompt) const {
  if (prompt.empty()) throw_input_error("The prompt is empty: give it at least one token.");
  if (prompt.size() > model_.config.max_positions)
    throw_input_error("The prompt has {} tokens and model '{}' has {} positions (max_position_embeddings): shorten it.",
                      prompt.size(), model_.name, model_.config.max_positions);
  check_tokens(model_, prompt);
}

/// For a prompt that grows from `held` to `total` prefilled tokens; what it keeps of `before` is copied.
PromptQueries Engine::room_for_queries(const PromptQueries& before, std::uint32_t held, std::uint32_t total) {
  const ModelShape s = shape();
  const std::size_t width = std::size_t{s.q_heads} * s.head_dim;
  PromptQueries room;
  room.kept = options_.keep_queries;
  if (room.kept == 0) return room;
  room.values = device_.allocate_device(s.layers * room.kept * width * sizeof(float), "prompt queries");
  const std::uint32_t first = std::max(total, room.kept) - room.kept;
  if (first >= held) return room;
  Op op("keep queries");
  op.access = {before.values.reads(), room.values.writes()};
  set_copies(op, [layers = s.layers, bytes = width * sizeof(float), before, room, first, held](Copier& copier) {
    Copier::Between queries = copier.between(room.values, before.values);
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      for (std::uint32_t t = first; t < held; ++t) {
        const std::size_t at = (std::size_t{layer} * room.kept + t % room.kept) * bytes;
        queries.add(at, at, bytes);
      }
    }
  });
  device_.submit(device_.lane(LaneKind::device_compute), std::move(op));
  return room;
}

PromptSums Engine::room_for_sums(const PromptSums& before, std::uint32_t held, std::uint32_t total) {
  const ModelShape s = shape();
  PromptSums room;
  room.room = options_.column_sums ? total : 0;
  if (room.room == 0) return room;
  const std::size_t lists = std::size_t{s.layers} * s.kv_heads;
  room.values = device_.allocate_device(lists * room.room * sizeof(float), "column sums");
  if (held == 0) return room;
  Op op(kKeepColumnSums);
  op.access = {before.values.reads(), room.values.writes()};
  set_copies(op, [lists, before, room, held](Copier& copier) {
    Copier::Between sums = copier.between(room.values, before.values);
    for (std::size_t list = 0; list < lists; ++list)
      sums.add(list * room.room * sizeof(float), list * before.room * sizeof(float), held * sizeof(float));
  });
  device_.submit(device_.lane(LaneKind::device_compute), std::move(op));
  return room;
}

/// Some of the sequence's KV is nowhere else.
bool Engine::in_host_memory(SequenceId sequence) const {
  const Range blocks{0, blocks_for(kv_->tokens(sequence))};
  for (std::uint32_t layer = 0; layer < kv_->shape().layers; ++layer)
    if (!kv_->on_device(sequence, layer, blocks)) return true;
  return false;
}

/// Where a sequence with `more` tokens does not fit the device beside what a batch of forks needs there: what lets its
/// KV leave layer by layer. Forks cannot give up slots that their prefix holds.
std::unique_ptr<KvOffload> Engine::spill_for(SequenceId sequence, std::uint32_t more) {
  const std::uint32_t held = kv_->tokens(sequence), layers = shape().layers;
  const std::size_t grown = std::size_t{layers} * (blocks_for(held + more) - blocks_for(held));
  if (!options_.host_prompts) return nullptr;
  auto spill = std::make_unique<KvOffload>(*kv_, OffloadPolicy{.sinks = 0, .window = 0}, [this](LaneKind lane, Op op) {
    return device_.submit(device_.lane(lane), std::move(op));
  });
  const std::size_t of_forks = options_.max_batch * fork_slots(kv_->shape(), held + more);
  kv_->reclaim(grown + of_forks);
  if (grown + of_forks <= kv_->free_slots(Tier::device) && !in_host_memory(sequence)) return nullptr;
  const std::size_t least = spill->least_slots(held + more) +
                            std::size_t{layers} * (blocks_for(options_.prefill_chunk) + spill->unit_pages()),
                    room =
                        kv_->free_slots(Tier::device) + kv_->bytes(sequence, Tier::device) / kv_->shape().slot_bytes();
  if (least > room)
    throw_input_error(
        "A prompt of {} tokens does not fit the device's KV store, and needs {} bytes of it to be prefilled layer by "
        "layer; {} are free. Raise --device-kv, or lower the prefill chunk.",
        held + more, least * kv_->shape().slot_bytes(), room * kv_->shape().slot_bytes());
  spill->set_budget(room);
  spill->add(sequence);
  if (held % kPageTokens != 0) spill->keep_page(sequence, held / kPageTokens);
  return spill;
}

Event Engine::prefill_chunks(SequenceId sequence, std::span<const std::int32_t> tokens, const PromptQueries& queries,
                             const PromptSums& sums,
                             const std::function<void(std::uint32_t first, std::uint32_t rows)>& submitted,
                             const std::function<void()>& ended) {
  const auto total = static_cast<std::uint32_t>(tokens.size());
  const std::unique_ptr<KvOffload> spill = spill_for(sequence, total);
  Event last;
  for (std::uint32_t first = 0; first < total; first += options_.prefill_chunk) {
    check_going_on(options_);
    const std::uint32_t rows = std::min(options_.prefill_chunk, total - first);
    if (last.valid()) {
      device_.host_wait(last);  // the chunk before went through the same host buffer
      if (ended) ended();
    }
    const KeepQueries keep{queries, total - std::min(total, first + queries.kept)};
    last = forward_->prefill_chunk(
        "prefill chunk", sequence, tokens.subspan(first, rows), keep, spill.get(), [&](const Forward::Attending& what) {
          forward_->prefill_attention(sequence, what.layer, what.first, what.rows, what.there);
          if (sums.room > 0) forward_->add_column_sums(sequence, what.layer, what.first, what.rows, sums);
        });
    if (submitted) submitted(first, rows);
  }
  if (spill != nullptr) {
    spill->keep_no_page(sequence);
    spill->evict_all(sequence);
  }
  return last;
}

std::unique_ptr<Prefix> Engine::prefill(std::span<const std::int32_t> prompt) {
  check_prompt(prompt);
  device_.drain();
  kv_->all_done();
  auto prefix = std::make_unique<Prefix>();
  prefix->sequence = kv_->create();
  const std::span<const std::int32_t> tokens = prompt.first(prompt.size() - 1);
  const bool caches = cache_ != nullptr && !tokens.empty();
  try {
    PrefixCache::Reused reused;
    if (caches) {
      prefix->sums = room_for_sums({}, 0, static_cast<std::uint32_t>(tokens.size()));
      prefix->queries = room_for_queries({}, 0, static_cast<std::uint32_t>(tokens.size()));
      reused = cache_->take(tokens, *prefix);
    }
    std::vector<PrefillTimes> chunks;
    if (caches && reused.tokens == tokens.size())
      prefix->prompt.assign(prompt.begin(), prompt.end());
    else
      chunks = extend(*prefix, {prompt.begin(), prompt.end()});
    prefix->reused = reused.tokens;
    prefix->prefill_ns += reused.times.prefill_ns;
    prefix->sums_ns += reused.times.sums_ns;
    for (PrefillTimes& chunk : chunks) {
      chunk.prefill_ns += reused.times.prefill_ns;
      chunk.sums_ns += reused.times.sums_ns;
    }
    if (caches && !chunks.empty() && !in_host_memory(prefix->sequence))
      cache_->publish(tokens, *prefix, reused.tokens, chunks);
  } catch (...) {
    release(*prefix);
    throw;
  }
  return prefix;
}

std::unique_ptr<Prefix> Engine::lay_out(std::span<const std::int32_t> prompt) {
  TANDEM_CHECK(device_.shapes_only(), "pages without content are for devices that simulate shapes");
  check_prompt(prompt);
  auto prefix = std::make_unique<Prefix>();
  prefix->sequence = kv_->create();
  prefix->prompt.assign(prompt.begin(), prompt.end());
  const auto total = static_cast<std::uint32_t>(prompt.size() - 1);
  try {
    prefix->sums = room_for_sums({}, 0, total);
    prefix->queries = room_for_queries({}, 0, total);
    std::vector<Event> recycled;  // nobody reads or writes these pages before the next drain
    for (std::uint32_t first = 0; first < total; first += options_.prefill_chunk)
      kv_->grow(prefix->sequence, std::min(options_.prefill_chunk, total - first), recycled);
  } catch (...) {
    release(*prefix);
    throw;
  }
  return prefix;
}

void Engine::append(Prefix& prefix, std::span<const std::int32_t> more) {
  std::vector<std::int32_t> prompt = prefix.prompt;
  prompt.insert(prompt.end(), more.begin(), more.end());
  check_prompt(prompt);
  device_.drain();
  kv_->all_done();
  extend(prefix, std::move(prompt));
  prefix.reused = 0;
}

std::vector<PrefillTimes> Engine::extend(Prefix& prefix, std::vector<std::int32_t> prompt) {
  const Nanos begin = device_.now();
  const std::uint32_t held = kv_->tokens(prefix.sequence);
  const std::span<const std::int32_t> rest = std::span<const std::int32_t>(prompt).subspan(held);
  PromptQueries queries;
  PromptSums sums;
  Trace trace;
  std::vector<Nanos> ends;
  try {
    sums = room_for_sums(prefix.sums, held, static_cast<std::uint32_t>(prompt.size() - 1));
    queries = room_for_queries(prefix.queries, held, static_cast<std::uint32_t>(prompt.size() - 1));
    if (rest.size() > 1) copy_shared_tail(device_, *kv_, prefix.sequence);
    const Event last = prefill_chunks(prefix.sequence, rest.first(rest.size() - 1), queries, sums, {},
                                      [&] { ends.push_back(device_.now()); });
    if (device_.is_gpu()) {  // there a drain reads the marks of every operation
      device_.host_wait(last);
      prefix.prefill_ns = device_.now() - begin;
    }
    trace = device_.drain();  // the last chunk may fail here
    MappedFile::check_all();
  } catch (...) {
    device_.drain_after_error();
    kv_->all_done();
    kv_->truncate(prefix.sequence, held);
    throw;
  }
  if (!device_.is_gpu()) prefix.prefill_ns = device_.now() - begin;
  ends.push_back(begin + prefix.prefill_ns);
  std::vector<PrefillTimes> times = times_of(trace, begin, ends);
  prefix.prompt = std::move(prompt);
  prefix.queries = std::move(queries);
  prefix.sums = std::move(sums);
  prefix.trace = std::move(trace);
  prefix.sums_ns = times.back().sums_ns;
  kv_->all_done();
  return times;
}

void Engine::release(const Prefix& prefix) {
  if (cache_) cache_->release(prefix);
  kv_->destroy(prefix.sequence);
}

std::vector<float> Engine::prefill_logits(std::span<const std::int32_t> prompt) {
  check_prompt(prompt);
  const SequenceId sequence = kv_->create();
  const auto give_back = [&] {
    kv_->all_done();
    kv_->destroy(sequence);
  };
  std::vector<float> logits(prompt.size() * model_.config.vocab);
  try {
    prefill_chunks(sequence, prompt, {}, {}, [&](std::uint32_t first, std::uint32_t rows) {
      forward_->all_logits(rows, logits.data() + std::size_t{first} * model_.config.vocab);
    });
    device_.drain();
    MappedFile::check_all();
  } catch (...) {
    device_.drain_after_error();
    give_back();
    throw;
  }
  give_back();
  return logits;
}

void Engine::check_requests(Method& method, std::span<const DecodeRequest> requests) const {
  if (requests.empty() || requests.size() > options_.max_batch)
    throw_input_error("A batch of {} sequences was asked for; this engine takes 1 to {}.", requests.size(),
                      options_.max_batch);
  const Needs needs = method.needs(shape());
  for (const DecodeRequest& request : requests) {
    if (needs.host_prompts || !in_host_memory(request.prefix->sequence)) continue;
    throw_input_error(
        "The prompt's KV did not fit the device and is in host memory, where method '{}' does not take it: raise "
        "--device-kv, or use 'full' with device=SHARE.",
        method.spelled_out());
  }
  if (needs.last_queries > options_.keep_queries)
    throw_input_error("Method '{}' needs the prompt's last {} queries and this engine keeps {}.", method.spelled_out(),
                      needs.last_queries, options_.keep_queries);
  if (needs.column_sums && !options_.column_sums)
    throw_input_error("Method '{}' needs the prompt's attention column sums, which this engine does not keep.",
                      method.spelled_out());
  for (const DecodeRequest& request : requests) {
    check_positions(model_, request.prefix->prompt.size(), request.max_new_tokens);
    if (request.max_new_tokens == 0) throw_input_error("A request asks for 0 new tokens; ask for one at least.");
  }
}

DecodeResult Engine::decode(Method& method, std::span<const DecodeRequest> requests, const DecodeOptions& options) {
  check_requests(method, requests);
  DecodeSession session(model_, device_, pool_, options_, *kv_, *forward_, method, requests,
                        DecodeSession::Finished::release);
  return session.decode(options);
}

std::unique_ptr<DecodeSession> Engine::open_session(Method& method, std::span<const DecodeRequest> requests) {
  check_requests(method, requests);
  return std::make_unique<DecodeSession>(model_, device_, pool_, options_, *kv_, *forward_, method, requests,
                                         DecodeSession::Finished::keep);
}

}  // namespace tandem

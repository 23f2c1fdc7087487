// A new prompt for a sequence that was kept: prefilled behind what it has, chunk by chunk, in its own pages.
#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "engine/common/error.h"
#include "engine/runtime/decode_session.h"
#include "engine/runtime/hook.h"
#include "engine/runtime/limits.h"

namespace tandem {

Nanos DecodeSession::append_chunks(Active& a, std::span<const std::int32_t> tokens, const AppendRequest& wanted) {
  Nanos drained = 0;
  const std::uint32_t before = a.state.tokens, total = static_cast<std::uint32_t>(tokens.size());
  AppendAttention attention(forward_, device_, pool_, kv_, a.state.id, {before, before + total}, engine_.prefill_chunk,
                            wanted);
  PromptQueries queries;  // of the new prompt; a prefix keeps its own
  queries.kept = engine_.keep_queries;
  const ModelShape shape = forward_.shape();
  if (queries.kept > 0)
    queries.values = device_.allocate_device(
        std::size_t{shape.layers} * queries.kept * shape.q_heads * shape.head_dim * sizeof(float), "prompt queries");
  Event last;
  try {
    for (std::uint32_t done = 0; done < total; done += engine_.prefill_chunk) {
      check_going_on(engine_);
      if (last.valid()) device_.host_wait(last);  // the chunk before went through the same host buffer
      const std::uint32_t rows = std::min(engine_.prefill_chunk, total - done);
      const KeepQueries keep{queries, total - std::min(total, done + queries.kept)};
      last = forward_.prefill_chunk("append chunk", a.state.id, tokens.subspan(done, rows), keep, wanted.keeper,
                                    [&](const Forward::Attending& what) { attention.run(what); });
      parts_.last_reader = last;
    }
    drained = drain_behind({last});  // `attention` and its buffers are in use until here
  } catch (...) {
    device_.drain_after_error();
    kv_.all_done();
    kv_.truncate(a.state.id, before);
    throw;
  }
  parts_.queries[a.state.id] = queries;
  parts_.sums[a.state.id] = {};
  return drained;
}

/// Drains the device. On a GPU, where that reads the marks of every operation: how long it took when `work` was done.
Nanos DecodeSession::drain_behind(const std::vector<Event>& work) {
  if (device_.is_gpu())
    for (const Event& event : work) device_.host_wait(event);
  const Nanos done = device_.now();
  device_.drain();
  return device_.is_gpu() ? device_.now() - done : 0;
}

Nanos DecodeSession::append(std::size_t request, std::span<const std::int32_t> more, std::uint32_t max_new_tokens) {
  TANDEM_CHECK(finished_ == Finished::keep && prepared_ && request < waiting_.size() && waiting_[request] != nullptr,
               "request {} is not a kept sequence between two decodes", request);
  if (more.empty())
    throw_input_error("The new prompt of request {} is empty; without one, decode again to go on with it.", request);
  Active& a = *waiting_[request];
  std::vector<std::int32_t> tokens = {a.next};
  tokens.insert(tokens.end(), more.begin(), more.end());
  if (device_.is_gpu() && method_.needs(forward_.shape()).single_tokens)
    throw_input_error(
        "'{}' keeps tokens one by one, and behind these a further prompt is not computed with --device cuda yet: "
        "--device sim and emu do that.",
        method_.spelled_out());
  check_tokens(model_, more);
  check_positions(model_, a.state.tokens + tokens.size(), max_new_tokens);
  if (max_new_tokens == 0) throw_input_error("A new prompt asks for 0 new tokens; ask for one at least.");
  device_.drain();
  kv_.all_done();
  const Nanos began = device_.now();
  const auto added = static_cast<std::uint32_t>(tokens.size() - 1);
  const Range range{a.state.tokens, a.state.tokens + added};
  const std::uint32_t most_before = std::exchange(a.state.max_tokens, range.end + max_new_tokens);
  Nanos drained = 0;
  try {
    const auto place = [&] { return fmt::format("before_append of request {}", a.state.request); };
    const AppendRequest wanted = in_hook(method_, place, [&] { return method_.before_append(a.state, range, ops_); });
    TANDEM_CHECK(wanted.older == nullptr || method_.needs(forward_.shape()).single_tokens,
                 "a method whose tokens survive one by one says so in its needs (Needs::single_tokens)");
    drained = append_chunks(a, std::span<const std::int32_t>(tokens).first(added), wanted);
  } catch (...) {
    a.state.max_tokens = most_before;
    throw;
  }
  a.state.tokens = range.end;
  in_hook(
      method_, [&] { return fmt::format("appended of request {}", a.state.request); },
      [&] { method_.appended(a.state, range, ops_); });
  prompt_seen(a);
  a.next = tokens.back();
  a.max_new = max_new_tokens;
  drained += drain_behind(parts_.last_asked);
  kv_.all_done();
  return device_.now() - began - drained;
}

}  // namespace tandem

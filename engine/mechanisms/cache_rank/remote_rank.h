// A cache rank behind a communicator (AsyncSpade section 4.1): it has the KV of each sequence's whole pages and its
// latest queries, and answers every message with the KV of the tokens that it chose for the next step.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/distributed/communicator.h"
#include "engine/kernels/thread_pool.h"
#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"

namespace tandem {

/// The figures, beside RoPE, on which both ranks must agree.
struct RankShape {
  std::uint32_t layers = 0, q_heads = 0, kv_heads = 0;
  AttentionShape shape;  // of a KV head
  std::uint32_t page_tokens = 0;

  std::size_t width() const { return std::size_t{q_heads} * shape.dim; }
  std::size_t vector_bytes() const { return shape.dim * size_of(shape.kv); }
  std::size_t slot_bytes() const { return 2 * std::size_t{kv_heads} * page_tokens * vector_bytes(); }  // all heads
};
struct RankModel : RankShape {
  RopeTable rope;
};

/// One sequence of a message, for the message's layers.
struct RemoteRow {
  std::uint32_t sequence = 0;
  PredictionRule rule;
  std::uint32_t first = 0, queries = 0;        // positions of the queries that come with it
  std::uint32_t known = 0;                     // queries in the window after that
  std::uint32_t first_page = 0, end_page = 0;  // pages that come with it; the rank then has [0, end_page)
  std::uint32_t keep = 0;                      // tokens that a KV head gets
};

/// The near end: writes messages and reads answers, one per link. One thread sends at a time, another may receive.
class RemoteRank {
 public:
  /// Greets the rank, which forgets all it knew. Both ends have `patience` with each other, 0: for ever; between
  /// messages the rank waits for ever.
  RemoteRank(std::shared_ptr<Communicator> link, const RankModel& model, std::chrono::milliseconds patience);
  ~RemoteRank();
  RemoteRank(const RemoteRank&) = delete;
  RemoteRank& operator=(const RemoteRank&) = delete;

  /// data, by row: for each layer the queries [n][Hq][D] f32, then the pages [kv_head]{K [16][D], V [16][D]}.
  void send(std::uint32_t layers_begin, std::uint32_t layers_end, const std::vector<RemoteRow>& rows,
            const std::vector<Message>& data);
  /// The answer to the oldest message with tokens to choose: by row with keep > 0 [layer][kv_head]{K, V [keep][D]}.
  /// RunError with the rank's own words where it failed.
  Message receive();
  /// From any thread, and never waits: the rank hears of it with the next message, or when this object ends.
  void forget(std::uint32_t sequence);

 private:
  std::vector<std::uint32_t> take_forgotten();

  std::shared_ptr<Communicator> link_;
  std::mutex mutex_;
  std::vector<std::uint32_t> forgotten_;  // and not told yet
};

/// The far end: serves until the near end says goodbye or is gone. What goes wrong becomes an answer, or where none can
/// be given, what this returns. `pool` chooses the tokens.
std::string serve_cache_rank(Communicator& link, ThreadPool& pool);
/// Says goodbye to it; nothing where it is gone already.
void dismiss_cache_rank(Communicator& link);

/// A far end in a thread of this process.
class RankThread {
 public:
  RankThread();
  ~RankThread();
  RankThread(const RankThread&) = delete;
  RankThread& operator=(const RankThread&) = delete;
  const std::shared_ptr<Communicator>& link() const { return near_; }

 private:
  explicit RankThread(CommunicatorPair ends);

  std::shared_ptr<Communicator> near_;
  std::thread thread_;
};

}  // namespace tandem

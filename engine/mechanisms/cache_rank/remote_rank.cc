#include "engine/mechanisms/cache_rank/remote_rank.h"

#include <algorithm>
#include <exception>
#include <unordered_map>
#include <utility>

#include "engine/common/error.h"
#include "engine/distributed/message.h"
#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"

namespace tandem {
namespace {

enum class Says : std::uint8_t { hello, step, forget, goodbye, selection, failure };

class Server {
 public:
  Server(Communicator& link, ThreadPool& pool) : link_(link), pool_(pool) {}

  /// False: the near end said goodbye.
  bool serve(Message message) {
    MessageReader in(std::move(message));
    switch (in.get<Says>()) {
      case Says::hello:
        greet(in);
        return true;
      case Says::step:
        step(in);
        return true;
      case Says::forget:
        forget(in);
        return true;
      case Says::goodbye:
        return false;
      case Says::selection:
      case Says::failure:
        break;
    }
    throw_run_error("The cache rank got a message that it cannot answer.");
  }

 private:
  struct Layer {
    std::vector<float> window;  // [Hq][room][D]
    std::uint32_t queries = 0;  // that were put into it
    std::vector<std::byte> pages;
  };

  void forget(MessageReader& in) {
    for (auto left = in.get<std::uint32_t>(); left > 0; --left) sequences_.erase(in.get<std::uint32_t>());
  }

  void greet(MessageReader& in) {
    link_.set_patience(std::chrono::milliseconds(in.get<std::int64_t>()));
    static_cast<RankShape&>(model_) = in.get<RankShape>();
    model_.rope = RopeTable(model_.shape.dim, 1);
    model_.rope.scale = in.get<double>();
    for (double& frequency : model_.rope.inverse_frequency) frequency = in.get<double>();
    sequences_.clear();
  }

  void take_in(MessageReader& in, const RemoteRow& row, Layer& layer) const {
    const std::uint32_t dim = model_.shape.dim;
    const std::size_t at = row.first_page * model_.slot_bytes(), end = row.end_page * model_.slot_bytes();
    layer.queries = std::min(layer.queries + row.queries, row.rule.room());
    if (layer.pages.size() != at || layer.queries < row.known)
      throw_run_error(
          "A message goes on from page {} and {} queries of a sequence of which {} pages and {} queries are here: two "
          "decodes share one link, or a message was lost.",
          row.first_page, row.known - std::min(row.known, row.queries), layer.pages.size() / model_.slot_bytes(),
          layer.queries - std::min(layer.queries, row.queries));
    layer.window.resize(row.rule.room() * model_.width());
    std::vector<float> query(model_.width());
    for (std::uint32_t i = 0; i < row.queries; ++i) {
      std::memcpy(query.data(), in.get_bytes(query.size() * sizeof(float)), query.size() * sizeof(float));
      push_query(row.rule, model_.rope, query.data(), model_.q_heads, dim, row.first + i, layer.window.data());
    }
    layer.pages.resize(end);
    if (end > at) std::memcpy(layer.pages.data() + at, in.get_bytes(end - at), end - at);
  }

  /// What a KV head gets of a layer.
  struct Choice {
    RemoteRow row;
    const Layer* layer = nullptr;
    std::uint32_t kv_head = 0;
    std::size_t at = 0;  // of its bytes in the answer
  };

  void choose(const Choice& choice, std::byte* answer) const {
    const RemoteRow& row = choice.row;
    const Layer& layer = *choice.layer;
    const std::size_t page_bytes = model_.slot_bytes() / model_.kv_heads;
    std::vector<KvSpan> spans;
    spans.reserve(row.end_page);
    for (std::uint32_t page = 0; page < row.end_page; ++page) {
      const std::byte* k = layer.pages.data() + page * model_.slot_bytes() + choice.kv_head * page_bytes;
      spans.push_back({k, k + page_bytes / 2, model_.page_tokens, ~0u});
    }
    const std::size_t window_floats = std::size_t{model_.shape.group} * row.rule.room() * model_.shape.dim;
    const AheadWindow window{layer.window.data() + choice.kv_head * window_floats, row.known,
                             row.first + row.queries - 1};
    std::byte* const k = answer + choice.at;
    select_ahead(row.rule, model_.rope, window, spans, model_.shape, row.keep, k, k + row.keep * model_.vector_bytes());
  }

  void step(MessageReader& in) {
    forget(in);
    const auto begin = in.get<std::uint32_t>(), end = in.get<std::uint32_t>(), rows = in.get<std::uint32_t>();
    std::vector<Choice> choices;
    std::size_t bytes = 0;
    for (std::uint32_t i = 0; i < rows; ++i) {
      const auto row = in.get<RemoteRow>();
      std::vector<Layer>& layers = sequences_[row.sequence];
      layers.resize(model_.layers);
      for (std::uint32_t layer = begin; layer < end; ++layer) {
        take_in(in, row, layers[layer]);
        for (std::uint32_t g = 0; row.keep > 0 && g < model_.kv_heads; ++g) {
          choices.push_back({row, &layers[layer], g, bytes});
          bytes += 2 * row.keep * model_.vector_bytes();
        }
      }
    }
    if (choices.empty()) return;
    std::vector<std::byte> answer(bytes);
    pool_.parallel_for(choices.size(), [&](std::size_t i) { choose(choices[i], answer.data()); });
    MessageWriter out;
    out.put(Says::selection);
    out.put_bytes(answer.data(), answer.size());
    link_.send(out.take());
  }

  Communicator& link_;
  ThreadPool& pool_;
  RankModel model_{{}, RopeTable(2, 1)};
  std::unordered_map<std::uint32_t, std::vector<Layer>> sequences_;
};

void put_forgotten(MessageWriter& out, const std::vector<std::uint32_t>& sequences) {
  out.put(static_cast<std::uint32_t>(sequences.size()));
  for (const std::uint32_t sequence : sequences) out.put(sequence);
}

}  // namespace

RemoteRank::RemoteRank(std::shared_ptr<Communicator> link, const RankModel& model, std::chrono::milliseconds patience)
    : link_(std::move(link)) {
  link_->set_patience(patience);
  MessageWriter out;
  out.put(Says::hello);
  out.put(static_cast<std::int64_t>(patience.count()));
  out.put<RankShape>(model);
  out.put(model.rope.scale);
  for (const double frequency : model.rope.inverse_frequency) out.put(frequency);
  link_->send(out.take());
}

RemoteRank::~RemoteRank() {
  if (forgotten_.empty()) return;
  try {
    MessageWriter out;
    out.put(Says::forget);
    put_forgotten(out, forgotten_);
    link_->send(out.take());
  } catch (const std::exception&) {
    // The rank is gone: whoever waits for it says so.
  }
}

void RemoteRank::send(std::uint32_t layers_begin, std::uint32_t layers_end, const std::vector<RemoteRow>& rows,
                      const std::vector<Message>& data) {
  MessageWriter out;
  out.put(Says::step);
  put_forgotten(out, take_forgotten());
  out.put(layers_begin);
  out.put(layers_end);
  out.put(static_cast<std::uint32_t>(rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out.put(rows[i]);
    out.put_bytes(data[i].data(), data[i].size());
  }
  link_->send(out.take());
}

Message RemoteRank::receive() {
  Message answer = link_->receive();
  MessageReader in(answer);
  if (in.get<Says>() == Says::failure) throw_run_error("The cache rank failed: {}", in.rest());
  answer.erase(answer.begin());
  return answer;
}

void RemoteRank::forget(std::uint32_t sequence) {
  const std::lock_guard lock(mutex_);
  forgotten_.push_back(sequence);
}

std::vector<std::uint32_t> RemoteRank::take_forgotten() {
  const std::lock_guard lock(mutex_);
  return std::exchange(forgotten_, {});
}

std::string serve_cache_rank(Communicator& link, ThreadPool& pool) {
  Server server(link, pool);
  while (true) {
    Message message;
    try {
      message = link.await();
    } catch (const RunError&) {
      return {};  // the near end is gone, and with it who could be told
    }
    try {
      if (!server.serve(std::move(message))) return {};
    } catch (const std::exception& error) {
      MessageWriter out;
      out.put(Says::failure);
      out.put_bytes(error.what(), std::string_view(error.what()).size());
      try {
        link.send(out.take());
      } catch (const RunError&) {
        return error.what();
      }
    }
  }
}

void dismiss_cache_rank(Communicator& link) {
  MessageWriter out;
  out.put(Says::goodbye);
  try {
    link.send(out.take());
  } catch (const RunError&) {
    // It is gone already.
  }
}

RankThread::RankThread()
    : RankThread(make_thread_pair("The inference rank", "The cache rank", std::chrono::milliseconds(0))) {}

RankThread::RankThread(CommunicatorPair ends)
    : near_(std::move(ends.first)), thread_([far = std::shared_ptr<Communicator>(std::move(ends.second))] {
        ThreadPool alone(1);  // the others are the near end's
        serve_cache_rank(*far, alone);
      }) {}

RankThread::~RankThread() {
  dismiss_cache_rank(*near_);
  thread_.join();
}

}  // namespace tandem

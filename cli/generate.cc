// tandem generate: one prompt, or a conversation, through one method, streamed, with the step times behind it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <optional>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/session.h"
#include "engine/common/error.h"
#include "engine/common/interrupt.h"
#include "engine/model/utf8.h"
#include "engine/runtime/conversation.h"
#include "engine/runtime/limits.h"
#include "eval/report/table.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

constexpr const char* kGenerateFooter = R"(
Examples:
  tandem generate --prompt "Some secret numbers are written in the text below. ..."
  tandem generate --prompt-file prompt.txt --method hybrid-fixed:budget=0.1 --max-new 64
  tandem generate --chat --model ~/models/Qwen3-0.6B --system "Be brief."
  tandem generate --prompt "Once upon a time" --temperature 0.8 --top-p 0.95 --seed 7
  printf 'Hello\nAnd now?\n' | tandem generate --chat --model ~/models/Qwen3-0.6B --no-thinking

With --chat each line of the input is a turn of the user's (an empty one or the end of the input ends the session);
--prompt is then the first one. The method keeps its session: a turn computes only what is new, exactly over the KV that
the method still has. Where the chat format rewrites what was said, as Qwen3's does with reasoning, the conversation is
prefilled anew. The text streams to stdout; what it took follows on stderr: with --chat the real speed of this machine
unless --device or --hw is given, else TTFT (prefill + the method's own preparation + the first step) and TPOT (the
mean of the steps after it).

Decoding is greedy unless --temperature is above 0. Tokens are then drawn from the softmax of the logits divided by it,
of what --top-k, then --top-p, then --min-p leave. The same seed gives the same text on the same logits: a draw depends
on the seed and the token's position only.)";

struct GenerateOptions {
  SessionOptions session;
  std::string prompt, prompt_file, method = "full";
  std::uint32_t max_new = 64;
  std::string system;
  eval::ChatChoice chat;
  Sampling sampling;
  bool filtered = false;  // --top-k and the like were given
  bool timed = false;     // --device or --hw was given
};

/// Repaired text would be another prompt than the one that was meant.
void check_text(const std::string& text, const std::string& what) {
  const std::size_t valid = valid_utf8_bytes(text);
  if (valid == text.size()) return;
  throw_input_error("{}: byte {} (0x{:02x}) is no UTF-8. Convert the text first.", what, valid,
                    static_cast<unsigned char>(text[valid]));
}

/// Read once: a pipe gives its text only then.
std::string read_prompt(const GenerateOptions& options) {
  if (options.prompt.empty() == options.prompt_file.empty()) {
    throw_input_error("Give the prompt with either --prompt or --prompt-file.");
  }
  if (!options.prompt.empty()) {
    check_text(options.prompt, "--prompt");
    return options.prompt;
  }
  const std::string what = fmt::format("The prompt file '{}'", options.prompt_file);
  std::string text = read_text(options.prompt_file, what);
  if (text.empty()) throw_input_error("{} is empty.", what);
  check_text(text, what);
  return text;
}

void print_figures(const Session& session, const Conversation::Reply& reply) {
  const DecodeResult& result = reply.result;
  Nanos setup = 0, first = 0, later = 0, steps = 0;
  for (const StepIdle& step : result.idle.steps) {
    if (step.step == Device::kSetupStep) {
      setup = step.window;
    } else if (step.step == 0) {
      first = step.window;
    } else {
      later += step.window;
      ++steps;
    }
  }
  const auto ms = [](Nanos ns) { return double(ns) * 1e-6; };
  say(session.device->clock_name());
  say(fmt::format("TTFT {:.3f} ms = prefill of {} tokens {:.3f} + method's preparation {:.3f} + first step {:.3f}",
                  ms(reply.prefill_ns + setup + first), reply.prefilled, ms(reply.prefill_ns), ms(setup), ms(first)));
  if (steps > 0) say(fmt::format("TPOT {:.3f} ms over {}", ms(later) / double(steps), eval::counted(steps, "step")));
  const StepIdle& all = result.idle.decode;
  if (all.window == 0) return;
  const auto percent = [&](Nanos ns) { return fmt::format("{:.1f} %", 100.0 * double(ns) / double(all.window)); };
  std::string causes;
  for (int cause = 0; cause < kCauseCount; ++cause)
    if (all.by_cause[cause] != 0)
      causes += fmt::format("{}{} {}", causes.empty() ? ": " : ", ", to_string(static_cast<Cause>(cause)),
                            percent(all.by_cause[cause]));
  say(fmt::format("device busy {}, idle {}{}", percent(all.busy), percent(all.idle), causes));
}

/// Real time of an answer on this machine, whichever device's time a report would have.
class Speed {
 public:
  void token() {
    last_ = Clock::now();
    if (tokens_++ == 0) first_ = last_;
  }
  void print(std::size_t prefilled) const {
    const auto seconds = [](Clock::time_point from, Clock::time_point to) {
      return std::chrono::duration<double>(to - from).count();
    };
    std::string text = fmt::format("this machine: prefill of {} tokens", prefilled);
    if (tokens_ > 0) text += fmt::format(" and first token {:.2f} s", seconds(begin_, first_));
    if (tokens_ > 1) text += fmt::format(", then {:.1f} tokens/s", double(tokens_ - 1) / seconds(first_, last_));
    say(text);
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now(), first_ = begin_, last_ = begin_;
  std::uint64_t tokens_ = 0;
};

/// Decodes behind `tokens` and prints the text as it comes. Returns what was printed.
std::string answer(const GenerateOptions& options, const Session& session, Conversation& conversation,
                   const std::vector<std::int32_t>& tokens) {
  std::string text;
  StreamingDecoder decoder(*session.model.tokenizer);
  const bool terminal = isatty(STDOUT_FILENO) == 1;  // a file gets what the model says
  const auto show = [&](const std::string& part) {
    text += part;
    const std::string shown = terminal ? printable_lines(part) : part;
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    check_stdout();
  };
  DecodeOptions stream;
  if (options.sampling.temperature > 0) stream.sampling = {&options.sampling, 1};
  Speed speed;
  stream.on_token = [&](std::size_t, std::int32_t token) {
    speed.token();
    // A synthetic model's ids have no text: its tokenizer is another model's.
    show(session.model.synthetic ? fmt::format(" {}", token) : decoder.push(token));
  };
  const Conversation::Reply reply = conversation.reply(tokens, options.max_new, stream);
  show(decoder.finish());
  print("\n");
  check_stdout();
  if (options.chat.chat && !options.timed) {
    speed.print(reply.prefilled);
  } else {
    print_figures(session, reply);
  }
  return text;
}

void chat(const GenerateOptions& options, const Session& session, Conversation& conversation,
          const ChatWriter& writer) {
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  ChatOptions chat_options;
  chat_options.thinking = !options.chat.no_thinking;
  const bool asks = isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0;
  InputLines input;
  std::string line = options.prompt;
  // While a turn is being typed a signal ends the conversation, and so does one between two turns.
  const auto next_line = [&] {
    if (interrupted()) return false;
    if (asks) std::fputs("> ", stderr);
    if (!input.next(line)) return false;
    if (line.ends_with('\r')) line.pop_back();  // a file with Windows' line ends
    return !line.empty() && !interrupted();
  };
  for (bool more = !line.empty() || next_line(); more; more = next_line()) {
    check_text(line, "A turn");
    messages.push_back({"user", line});
    const std::string text = writer.write(messages, chat_options);
    const std::vector<std::int32_t> tokens = session.model.tokenizer->encode(text, false, Specials::parsed);
    messages.push_back({"assistant", answer(options, session, conversation, tokens)});
  }
}

std::vector<std::int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<std::int32_t> tokens = tokenizer.encode(prompt, /*add_bos=*/true);
  if (tokens != tokenizer.encode(prompt, /*add_bos=*/true, Specials::parsed)) {
    say("The prompt contains the text of a special token of this model: it is read as text, not as that token. --chat "
        "writes a conversation with the model's own.");
  }
  return tokens;
}

void generate(const GenerateOptions& options) {
  if (options.max_new == 0) throw_input_error("--max-new is 0: ask for at least one token.");
  if (!options.chat.chat && (options.chat.no_thinking || !options.system.empty() || !options.chat.format.empty()))
    throw_input_error("--system, --chat-format and --no-thinking belong to a conversation: add --chat.");
  check_sampling(options.sampling);
  if (options.sampling.temperature == 0 && options.filtered)
    throw_input_error(
        "--top-k, --top-p, --min-p and --seed say how tokens are drawn: add --temperature above 0, 1 for example.");
  if (options.chat.chat && !options.prompt_file.empty())
    throw_input_error("--chat reads its turns from the input: give it there, not with --prompt-file.");
  if (!options.system.empty()) check_text(options.system, "--system");
  const std::string prompt = options.chat.chat ? "" : read_prompt(options);  // a missing file is found before the model
  const auto method = make_method(options.method);
  say_hints({&options.method, 1}, options.session);
  Session session = open_session(options.session, /*quiet=*/false);
  session.engine.max_batch = 1;
  std::optional<ChatWriter> writer;
  if (options.chat.chat) writer = choose_chat_format(options.chat, session.model);
  keep_what_methods_need(session.engine, {&options.method, 1}, session.model);
  Engine engine(session.model, *session.device, *session.pool, session.engine);
  if (options.chat.chat && session.device->is_gpu() && method->needs(engine.shape()).single_tokens) {
    throw_input_error(
        "Method '{}' keeps tokens one by one: with --device cuda it takes no second turn yet. Give --chat another "
        "method, or leave --device cuda away.",
        options.method);
  }
  Conversation conversation(engine, *method);
  if (options.chat.chat) {
    chat(options, session, conversation, *writer);
  } else {
    check_text_fits(session.model, prompt, "The prompt");
    const std::vector<std::int32_t> tokens = prompt_tokens(*session.model.tokenizer, prompt);
    check_free_memory(session, 1, static_cast<std::uint32_t>(tokens.size()));
    answer(options, session, conversation, tokens);
  }
}

}  // namespace

void add_generate(Command app) {
  Command command = app.subcommand("generate", "Continue a prompt or a conversation with one method", kGenerateFooter);
  auto options = std::make_shared<GenerateOptions>();
  command.option("--prompt", options->prompt, "The prompt. Special tokens written in it (\"<|im_end|>\") are text");
  command.option("--prompt-file", options->prompt_file, "A file with the prompt; /dev/stdin is the input");
  command.option("--method", options->method, "Method with its options (`tandem methods`)");
  add_chat_options(command, options->chat, "A conversation: each line of the input is a turn", /*thinks=*/true);
  command.option("--system", options->system, "With --chat: the system's message");
  command.option("--max-new", options->max_new, "Tokens to generate at most (with --chat: per answer)");
  command.option("--temperature", options->sampling.temperature,
                 "0: the best token, always; above: draw tokens, 1 as the model says, less for likelier ones");
  command.option("--top-k", options->sampling.top_k, "Draw from the k best tokens (0: all)");
  command.option("--top-p", options->sampling.top_p,
                 "Draw from the best tokens that together have this probability (1: all)");
  command.option("--min-p", options->sampling.min_p,
                 "Draw from tokens at least this share as likely as the best one (0: all)");
  command.option("--seed", options->sampling.seed, "Seed of the draws");
  add_session_options(command, options->session);
  command.callback([options, command] {
    for (const char* name : {"--top-k", "--top-p", "--min-p", "--seed"})
      options->filtered = options->filtered || command.given(name);
    options->timed = command.given("--device") || command.given("--hw");
    generate(*options);
  });
}

}  // namespace tandem::cli

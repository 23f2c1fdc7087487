// What a model is asked: upstream's instructions and wording, which scores depend on.
#include <fmt/core.h>

#include "eval/leval/leval.h"
#include "eval/scoring/python_text.h"

namespace tandem::eval {
namespace {

/// Facts of the benchmark, spelled as upstream spells them.
const char* instruction_of(const LEvalDataset& dataset) {
  if (dataset.name == "gsm100")
    return "Given several question answer pairs, you need to follow a similar format to answer the last question. Make "
           "sure the response is end with The answer is _ . ";
  if (dataset.name == "topic_retrieval_longchat")
    return "Below is a record of our previous conversation on many different topics. You are the ASSISTANT, and I am "
           "the USER. At the beginning of each topic, the USER will say 'I would like to discuss the topic of "
           "<TOPIC>'. Memorize each <TOPIC>. At the end of the record, I will ask you to retrieve the "
           "first/second/third topic names. Now the record start. ";
  if (dataset.name == "coursera")
    return "Now you are given a very long document. Please follow the instruction based on this document. For "
           "multi-choice questions, there could be a sinlge correct option or multiple correct options. Please only "
           "provide the letter corresponding to the answer (like A or AB) when answering. ";
  if (dataset.name == "codeU")
    return "Now you are given a code base consisting of a large amount of functions and the corresponding comments. In "
           "the end, I will call some functions defined in the code base. Please carefully read these codes and "
           "comments and answer the question.";
  if (dataset.closed)
    return "Now you are given a very long document. Please follow the instruction based on this document. For "
           "multi-choice questions, there is only a sinlge correct option. Please only provide the letter "
           "corresponding to the answer (like A or B) when answering. For other questions, please directly give the "
           "concise and accurate answer. ";
  return "Now you are given a very long document. Please follow the instruction after this document. These "
         "instructions may include summarizing a document, answering questions based on the document, or writing a "
         "required paragraph. ";
}

/// Documents and questions that stand side by side, without words around them.
bool is_bare(const LEvalDataset& dataset) {
  return dataset.name == "gsm100" || dataset.name == "codeU" || dataset.name == "topic_retrieval_longchat";
}

std::string context_of(const LEvalDataset& dataset, const std::string& document, const LEvalQuestion& question) {
  if (is_bare(dataset)) return document + "\n\n" + question.instruction;
  if (dataset.closed)
    return fmt::format(
        "Document is as follows. {} \nQuestion: {}.  Please directly give the answer without any additional output or "
        "explanation ",
        document, question.instruction);
  return fmt::format("Document is as follows. {} Instruction: {} \nAnswer this question with {} words.", document,
                     question.instruction, split_words(question.answer).size());
}

}  // namespace

std::vector<std::int32_t> leval_tokens(const Tokenizer& tokenizer, const LEvalDataset& dataset,
                                       const std::string& document, const LEvalQuestion& question,
                                       const std::optional<ChatWriter>& template_of) {
  const std::string instruction = instruction_of(dataset), context = context_of(dataset, document, question);
  const bool begun = dataset.closed && !is_bare(dataset);  // the answer
  // Upstream calls format() on such texts as a whole; one that it refuses stays as it is.
  const auto whole = [&](const std::string& text) {
    if (!is_bare(dataset)) return text;
    return python_format(text, {{"document", document}, {"inst", question.instruction}}).value_or(text);
  };
  if (!template_of || template_of->is(ChatFormat::llama2)) {
    std::string text =
        template_of ? "[INST]<<SYS>>\n" + instruction + "\n<</SYS>>\n\n" + context : instruction + context;
    // Upstream leaves the turn open where the model is to go on with examples or with a program.
    const bool open = dataset.name == "gsm100" || dataset.name == "codeU";
    if (template_of && !open) text += "[/INST]";
    if (begun) text += "\nAnswer:";
    return tokenizer.encode(whole(text), /*add_bos=*/true);
  }
  const std::vector<ChatMessage> messages = {{"system", instruction}, {"user", whole(context)}};
  std::string text = template_of->write(messages, {.thinking = false});
  if (begun) text += "Answer:";
  return tokenizer.encode(text, /*add_bos=*/false, Specials::parsed);
}

}  // namespace tandem::eval

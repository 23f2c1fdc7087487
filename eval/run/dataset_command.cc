#include "eval/run/dataset_command.h"

#include "eval/run/option_values.h"

namespace tandem::eval {

std::vector<std::string> chosen_tasks(const std::string& option, const std::function<void(const std::string&)>& check) {
  if (option.empty()) return {};
  std::vector<std::string> tasks = split_list(option, "--tasks");
  for (const std::string& task : tasks) check(task);
  return tasks;
}

}  // namespace tandem::eval

// Bags of tasks: what all devices check of them, and a lane's share of one as one operation, for lanes with own
// threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "engine/device/device.h"
#include "engine/device/task_queue.h"

namespace tandem {

/// What a side's operations may wait for, and LogicError for one that waits for anything else: on some devices they are
/// made when it is too late to wait.
std::span<const Event> declared_waits(const QueuedTasks& bag, std::uint32_t side);
void check_waits(std::span<const Event> declared, const Op& op);

/// The queue that the pullers empty together, with the bag's guard.
std::shared_ptr<TaskQueue> queue_of(const QueuedTasks& bag, std::span<const Puller> pullers);

/// Takes the tasks that the puller's side may take until none is left; nullopt where there are none. Its cost is
/// settled as theirs. An exception of a task ends it: others take what is left. `reach`: of the bodies.
std::optional<Op> queue_share(const QueuedTasks& bag, const Puller& puller, std::uint32_t number,
                              std::shared_ptr<TaskQueue> queue, BodyContext::Reach reach);

}  // namespace tandem

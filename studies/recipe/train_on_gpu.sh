#!/usr/bin/env bash
# Trains the embedded model on a machine with a GPU, in calls of at most ten minutes each: training runs on between calls.
#
#   train_on_gpu.sh start [minutes]   trains in the background, from the last checkpoint on if there is one; waits
#   train_on_gpu.sh wait [minutes]    waits on; starts it where it does not run
#   train_on_gpu.sh test [minutes]    tests the export by task and length, after a `stop` where training still runs; the
#                                             same call adds what is missing
#   train_on_gpu.sh stop              ends training cleanly: checkpoint and export first
#
# A call waits until it is `minutes` old (whole ones; 8, of a test 7), lets training save, then copies what there is to $OUT: the
# export's weight shards, the rest of it as export.tar, the logs and accuracy.json; each file is smaller than 16 MB
# (plot_training.py draws the curve from log.jsonl, anywhere). With 8 it ends within ten minutes: saving takes half a
# minute at most. While it waits it copies the last save every two minutes, so that a call that is ended from outside leaves that, and
# starts training again, twice at most, where it has died or made no step for STALL seconds; without torch.compile where it had
# made none at all. What train.py itself refuses is final.
# A test copies the export before it begins. The exit code is 0 while all is well, 1 when training failed, 2 where there is no GPU to train on.
# On a machine that starts empty each time, unpack the last results into a folder and set INIT to it: training then begins with
# those weights, at the stage they had reached.
#
# Environment: OUT (default runs/gpu/results), RUN (default runs/gpu), LENGTHS and SAMPLES for the test; and what later calls remember
# (RUN/settings) where they are not given another: CONFIG (default studies/recipe/gpu.json), TEXT (sentences made by
# text.py; without it natural text is left out), INIT, PYTHON (default python3), COMPILE=0 to train without torch.compile,
# WITHIN: minutes from the first start on in which the whole plan shall be over, compiling, saving and being started
# again included (without it, the plan's own minutes, to which these are added), PLAN_MINUTES to scale the plan's own,
# ALLOW_CPU=1 to try it without a GPU, STALL (default 150).
# Where RUN has a tokenizer.model already, the GPU does not wait for one to be trained.
set -euo pipefail
cd "$(dirname "$0")/../.."
run=${RUN:-runs/gpu} out=${OUT:-${RUN:-runs/gpu}/results}
command=${1:-}
settings=(CONFIG TEXT INIT COMPILE WITHIN PLAN_MINUTES PYTHON ALLOW_CPU STALL)
if [ -f "$run/settings" ] && { [ "$command" != start ] || [ -e "$run/last.pt" ] || [ -e "$run/beat" ]; }; then
  while IFS='=' read -r name value; do
    if [ -z "${!name+set}" ]; then declare "$name=$value"; fi
  done <"$run/settings"
fi
python=${PYTHON:-python3} config=${CONFIG:-studies/recipe/gpu.json} stall=${STALL:-150}
minutes=${2:-$([ "$command" = test ] && echo 7 || echo 8)}
if ! [[ $minutes =~ ^[0-9]+$ ]]; then
  echo "train_on_gpu.sh: minutes is '$minutes': give a whole number." >&2
  exit 2
fi
mkdir -p "$run" "$out"

# One that has ended but that nobody has asked for its exit code (Z) is not alive, nor is a stranger with its number.
alive() {
  local state
  [ -f "$run/pid" ] || return 1
  grep -qa studies/recipe/train.py "/proc/$(cat "$run/pid")/cmdline" 2>/dev/null || return 1
  state=$(sed 's/.*) //' "/proc/$(cat "$run/pid")/stat" 2>/dev/null) || return 1
  [ -n "$state" ] && [ "${state%% *}" != Z ]
}
ended_with() { [ -f "$run/train.log" ] && [[ "$(tail -n 1 "$run/train.log")" == $1* ]]; }
finished() { ended_with finished; }

# Minutes of WITHIN that are left. They count from the first start, this script's own seconds included; where they are over and the
# plan is not, a start is a first one again.
minutes_left() {
  local now
  now=$(date +%s)
  if [ ! -s "$run/deadline" ] || [ "$(cat "$run/deadline")" -lt $((now + 30)) ]; then
    awk -v now="$now" -v since="$SECONDS" -v minutes="$WITHIN" 'BEGIN { printf "%d\n", now - since + 60 * minutes }' >"$run/deadline"
  fi
  awk -v now="$now" -v end="$(cat "$run/deadline")" 'BEGIN { printf "%.2f\n", (end - now) / 60 }'
}

# Minutes on a CPU that nobody meant would be found out at their end.
need_gpu() {
  if [ "${ALLOW_CPU:-0}" = 1 ] || "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then return 0; fi
  echo "train_on_gpu.sh: $python has no torch that sees a GPU; set PYTHON, or ALLOW_CPU=1 to try it without one." >&2
  exit 2
}

# What is missing would be found out when torch is there, and told when this call is over.
need_files() {
  local file files=("$config") init=${INIT:-}
  if [ -e "$run/last.pt" ]; then init=; fi  # it goes on from there
  if [ -n "${TEXT:-}" ]; then files+=("$TEXT"); fi
  if [ -n "$init" ]; then files+=("$init"/{config.json,training.json,tokenizer.model}); fi
  for file in "${files[@]}"; do
    if [ ! -s "$file" ]; then
      echo "train_on_gpu.sh: there is no $file; see CONFIG, TEXT and INIT." >&2
      exit 2
    fi
  done
  if [ -n "$init" ] && ! compgen -G "$init/model*.safetensors" >/dev/null; then
    echo "train_on_gpu.sh: INIT=$init has no model*.safetensors." >&2
    exit 2
  fi
}

remember() {
  local name
  for name in "${settings[@]}"; do
    if [ -n "${!name+set}" ]; then echo "$name=${!name}"; fi
  done >"$run/settings"
}

launch() {
  local words=(studies/recipe/train.py --config "$config" --out "$run")
  if [ -n "${TEXT:-}" ]; then words+=(--text "$TEXT"); fi
  if [ -n "${INIT:-}" ]; then words+=(--init "$INIT"); fi
  if [ "${COMPILE:-1}" = 1 ]; then words+=(--compile); fi
  if [ -n "${PLAN_MINUTES:-}" ]; then words+=(--minutes "$PLAN_MINUTES"); fi
  if [ -n "${WITHIN:-}" ]; then words+=(--within "$(minutes_left)"); fi
  rm -f "$run/beat"
  launched=$(date +%s)
  echo "launched at $(date -u)" >>"$run/train.log"  # how one before it ended says nothing of this one
  # A session of its own: it outlives this call.
  PYTHONUNBUFFERED=1 setsid nohup "$python" "${words[@]}" >>"$run/train.log" 2>&1 </dev/null &
  echo $! >"$run/pid"
  until alive || ! kill -0 $! 2>/dev/null; do sleep 0.1; done  # it is this script's copy for a moment
}

# An export of now, where training runs and has made a step: the next is minutes away, so that none is replaced while it is
# copied.
save_now() {
  alive && [ -e "$run/beat" ] || return 0
  touch "$run/save-now"
  for _ in $(seq 60); do
    if [ ! -e "$run/save-now" ] || ! alive; then return 0; fi
    sleep 0.5
  done
  rm -f "$run/save-now"  # a step that takes this long, while a shape is compiled, is followed by no save
}

# Links, in no time, or copies where there can be none. Fails where there is no export, which training replaces by another in a moment.
link_export() {
  local how
  for how in -al -a; do
    rm -rf "$run/collected"
    mkdir "$run/collected"
    if cp "$how" "$run/export" "$run/collected/" 2>/dev/null; then return 0; fi
  done
  return 1
}

# What there is of the last save, to $OUT.
copy_results() {
  if link_export || { sleep 1 && link_export; }; then
    cp "$run"/collected/export/*.safetensors "$out/"
    tar -C "$run/collected" --exclude='*.safetensors' -cf "$out/export.tar" export
  elif [ -e "$run/export" ]; then
    echo "train_on_gpu.sh: $run/export could not be copied." >&2
  fi
  rm -rf "$run/collected"
  for file in log.jsonl train.log accuracy.json; do
    if [ -f "$run/$file" ]; then cp "$run/$file" "$out/"; fi
  done
}

collect() {
  save_now
  copy_results
  ls -l "$out"
}

stop_training() {
  if alive; then kill -TERM "$(cat "$run/pid")"; fi
  for _ in $(seq 120); do
    alive || return 0
    sleep 1
  done
  echo "train_on_gpu.sh: training does not end; see $run/train.log." >&2
  return 1
}

# Whether no step has been made for too long; of one that an earlier call launched, since this one began.
hangs() {
  local last=$launched
  if [ -e "$run/beat" ]; then last=$(stat -c %Y "$run/beat"); fi
  [ $(($(date +%s) - last)) -ge "$stall" ]
}

wait_for_training() {
  local end=$((minutes * 60)) copied=$SECONDS again=0  # SECONDS began with this script: finding the GPU counts too
  while [ "$SECONDS" -lt "$end" ]; do
    if alive && hangs; then
      echo "train_on_gpu.sh: no step for $stall s; training is killed." >&2
      kill -KILL -- "-$(cat "$run/pid")" || true  # with the processes that make data
      while alive; do sleep 0.1; done
    fi
    if ! alive; then
      if finished || ended_with stopped || ended_with train.py: || [ "$again" = 2 ]; then break; fi
      again=$((again + 1))
      tail -n 20 "$run/train.log" >&2
      if [ ! -e "$run/beat" ]; then COMPILE=0; fi
      echo "train_on_gpu.sh: training ended early, and is started again$([ "${COMPILE:-1}" = 1 ] || echo ", without torch.compile")." >&2
      launch
    fi
    sleep 1
    if [ $((SECONDS - copied)) -ge 120 ]; then
      copy_results
      copied=$SECONDS
    fi
  done
  tail -n 12 "$run/train.log"
  collect
  if alive; then echo "train_on_gpu.sh: training goes on; call '$0 wait' again."; return 0; fi
  if finished; then echo "train_on_gpu.sh: training is finished."; return 0; fi
  echo "train_on_gpu.sh: training ended early, see $run/train.log; '$0 start' goes on from the last checkpoint." >&2
  return 1
}

launched=$(date +%s)
case $command in
  start | wait)
    if ! alive && ! finished; then
      need_files
      need_gpu
      remember
      launch
    fi
    wait_for_training
    ;;
  stop)
    status=0
    stop_training || status=1
    tail -n 3 "$run/train.log"
    collect
    exit "$status"
    ;;
  test)
    status=0
    stop_training || echo "train_on_gpu.sh: tests beside it." >&2
    collect
    # Every cell is in $OUT too as soon as it is finished: this call may be ended from outside.
    "$python" studies/recipe/evaluate.py --model "$run/export" --out "$run" "$out" --minutes "$minutes" \
      --lengths "${LENGTHS:-1K,2K,4K,8K,16K}" --samples "${SAMPLES:-100}" || status=$?
    exit "$status"
    ;;
  *)
    awk 'NR == 1 { next } !/^#/ { exit } { sub(/^# ?/, ""); print }' "$0"
    exit 2
    ;;
esac

#!/usr/bin/env bash
# Trains the embedded model on a machine with a GPU, in calls of at most ten minutes each: training runs on between calls.
#
#   scripts/train_on_gpu.sh start [minutes]   trains in the background, from the last checkpoint on if there is one; waits
#   scripts/train_on_gpu.sh wait [minutes]    waits on; starts it again should it have died
#   scripts/train_on_gpu.sh test [minutes]    tests the export by task and length, after a `stop` where training still runs; the
#                                             same call adds what is missing
#   scripts/train_on_gpu.sh stop              ends training cleanly: checkpoint and export first
#
# A call waits `minutes` (whole ones, default 9), then copies what there is to $OUT: the export's weight shards, the rest of it as
# export.tar, the log, accuracy.json and the curve; each file is smaller than 16 MB. The exit code is 0 while all is well,
# 1 when training failed. On a machine that starts empty each time, unpack the last results into a folder and set INIT to it:
# training then begins with those weights, at the stage they had reached.
#
# Environment: OUT (default runs/gpu/results), RUN (default runs/gpu), CONFIG (default models/recipe/gpu.json), TEXT (sentences
# made by models/recipe/text.py; without it natural text is left out), INIT, PYTHON (default python3), COMPILE=1 for
# torch.compile, PLAN_MINUTES to scale the whole plan, LENGTHS and SAMPLES for the test. Where RUN has a tokenizer.model already,
# the GPU does not wait for one to be trained.
set -euo pipefail
cd "$(dirname "$0")/.."
run=${RUN:-runs/gpu} out=${OUT:-${RUN:-runs/gpu}/results} python=${PYTHON:-python3}
command=${1:-} minutes=${2:-9}
if ! [[ $minutes =~ ^[0-9]+$ ]]; then
  echo "train_on_gpu.sh: minutes is '$minutes': give a whole number." >&2
  exit 2
fi
mkdir -p "$run" "$out"

# One that has ended but that nobody has asked for its exit code (Z) is not alive.
alive() {
  local state
  [ -f "$run/pid" ] || return 1
  state=$(sed 's/.*) //' "/proc/$(cat "$run/pid")/stat" 2>/dev/null) || return 1
  [ -n "$state" ] && [ "${state%% *}" != Z ]
}
finished() { [ -f "$run/train.log" ] && [ "$(tail -n 1 "$run/train.log")" = finished ]; }

launch() {
  local words=(models/recipe/train.py --config "${CONFIG:-models/recipe/gpu.json}" --out "$run")
  if [ -n "${TEXT:-}" ]; then words+=(--text "$TEXT"); fi
  if [ -n "${INIT:-}" ]; then words+=(--init "$INIT"); fi
  if [ "${COMPILE:-0}" = 1 ]; then words+=(--compile); fi
  if [ -n "${PLAN_MINUTES:-}" ]; then words+=(--minutes "$PLAN_MINUTES"); fi
  # A session of its own: it outlives this call.
  PYTHONUNBUFFERED=1 setsid nohup "$python" "${words[@]}" >>"$run/train.log" 2>&1 </dev/null &
  echo $! >"$run/pid"
}

collect() {
  if [ -d "$run/export" ]; then
    cp "$run"/export/*.safetensors "$out/"
    tar -C "$run" --exclude='*.safetensors' -cf "$out/export.tar" export
  fi
  for file in log.jsonl train.log accuracy.json training.png; do
    if [ -f "$run/$file" ]; then cp "$run/$file" "$out/"; fi
  done
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

wait_for_training() {
  local end=$((SECONDS + minutes * 60))
  while alive && [ "$SECONDS" -lt "$end" ]; do sleep 2; done
  if [ -s "$run/log.jsonl" ]; then "$python" models/recipe/plot_training.py --run "$run" || true; fi
  tail -n 12 "$run/train.log"
  collect
  if alive; then echo "train_on_gpu.sh: training goes on; call '$0 wait' again."; return 0; fi
  if finished; then echo "train_on_gpu.sh: training is finished."; return 0; fi
  echo "train_on_gpu.sh: training ended early, see $run/train.log; '$0 start' goes on from the last checkpoint." >&2
  return 1
}

case $command in
  start | wait)
    if ! alive && ! finished; then launch; fi
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
    "$python" models/recipe/evaluate.py --model "$run/export" --out "$run" --minutes "$minutes" \
      --lengths "${LENGTHS:-1K,2K,4K,8K,16K}" --samples "${SAMPLES:-100}" || status=$?
    collect
    exit "$status"
    ;;
  *)
    sed -n '2,19s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac

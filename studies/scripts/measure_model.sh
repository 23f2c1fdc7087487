#!/usr/bin/env bash
# Measures what README.md, models/README.md and the lab notes say of the embedded model, of any model.
#
#   studies/scripts/measure_model.sh MODEL OUT [PART...]
#
# Parts, all of them where none is named, in this order:
#   accuracy    full attention, needle tasks at 512 to 8K, 100 samples each; single needles at 16K, 100
#   tasks       the other seven at 1K to 8K, 100 samples each
#   heads       which heads stream, sinks, budgets, overlaps; at 2K and 4K, and on TEXT where it is given
#   ahead       cosines of the layer-ahead query (ScoutAttention)
#   recall      intervals of its recalls, CPU's share by step
#   shift       predicted queries (AsyncSpade), with the plot
#   flops       accuracy at equal budgets of 128 tokens
#   hgca        perplexity by beta and device ratio, and needles, starved; heads that attend what their group chose
#   means       means for digests beside bounds: quest, hybrid-fixed, scoutattention
#   layers      ScoutAttention with layer 1, and with all layers, by their own query; recorded choices beside a run's
#   predictors  Fluxion's, one for each budget rule: collects, trains (PyTorch), writes OUT/fluxion and its reports
#   judge       these on prompts of a seed that nothing else uses
# and with these (of a shipped model once they are in its folder fluxion):
#   regret      the predictor beside labels measured in the run
#   near        accuracy at 2K and 3K, 1,200 samples; again where heads attend what their group chose
#   far         the same at 1K and 4K to 16K, 300 samples
#   ablations   budget rules, stages and what a head attends, with the plot
#   readme      the two tables of studies/notes/first_tables.md
#   recorded    the second of them with choices recorded on MODEL
#   equal       accuracy at equal bytes
#   needle      a needle by depth and length
# and, only where they are named, of a model that knows a language (studies/notes/language_model.md):
#   ruler       full attention, all RULER tasks at 1K to 4K, 10 samples each, with ESSAYS and QA
#   text        perplexity of TEXT with every method, 24 windows of 2K + 128 tokens
#   variants    perplexity of TEXT with other settings of methods: larger budgets, first layers dense, other rules
#   essays      needles in ESSAYS at 2K, 20 samples each, the same methods as of text, and InfiniGen's query heads apart
#   grid        perplexity of TEXT by HGCA's beta and device ratio
#   scout       perplexity of TEXT and needles in ESSAYS with ScoutAttention's first layers by their true query
#   learned     a predictor for Fluxion, learned from LEARN and RULER's prompts, into OUT/learned; perplexity of TEXT and needles in
#               ESSAYS with it, and with labels that are measured in the run
#   longer      needles in ESSAYS at 4K, 20 samples each, some methods with 512 and 1,024 tokens, and with that predictor
#
# A part whose result is in OUT is not measured again: the same command goes on after it was ended. model_tables.py writes the
# pages' tables from OUT, first_tables.py that note's from OUT/readme, readme_results.py README.md's
# from OUT/equal and a sweep at the same shares.
# PYTHON: one with PyTorch and numpy (default: python3). TANDEM: the program (default: build/release/bin/tandem).
# TEXT: a text file, such as the test part of WikiText-2; heads takes it, too. LEARN: another one, such as its valid part.
# ESSAYS, QA: what compare's --ruler-essays and --ruler-qa take.
# VECTOR: also write rows and what the predictor says of them, the golden of its test (tests/methods/fluxion/predictor.json).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 2 ] || { awk 'NR == 1 { next } !/^#/ { exit } { sub(/^# ?/, ""); print }' "$0"; exit 2; }
model=$1 out=$2
shift 2
parts=(accuracy tasks heads ahead recall shift flops hgca means layers predictors judge regret near far ablations readme recorded equal needle)
language=(ruler text variants essays grid scout learned longer)
for part in "$@"; do
  [[ " ${parts[*]} ${language[*]} " = *" $part "* ]] || {
    echo "measure_model.sh: there is no part '$part'; there are ${parts[*]} ${language[*]}." >&2
    exit 2
  }
done
[ $# = 0 ] || parts=("$@")
needs() {  # a variable, and the parts that cannot do without it
  local name=$1 part
  shift
  [ -z "${!name:-}" ] || return 0
  for part in "${parts[@]}"; do
    [[ " $* " != *" $part "* ]] || { echo "measure_model.sh: part '$part' needs $name: a file." >&2; exit 2; }
  done
}
needs TEXT text variants grid scout learned
needs LEARN learned
needs ESSAYS ruler essays scout learned longer
needs QA ruler
python=${PYTHON:-python3}
tandem=${TANDEM:-$root/build/release/bin/tandem}
# The system's Python, where there is one: Debian's matplotlib belongs to it.
plotting=$(command -v /usr/bin/python3 || echo "$python")
fluxion=fluxion:heads=$model  # with its own predictor: in a folder's folder fluxion, or of part predictors
[ ! -d "$model" ] || [ -e "$model/fluxion/fluxion.safetensors" ] || fluxion=fluxion:heads=$out
mkdir -p "$out"

# A run into folder $1, begun or continued; the rest is the command.
measure() {
  local folder=$out/$1 again=()
  shift
  [ ! -e "$folder/manifest.json" ] || again=(--resume)
  "$tandem" "$@" --model "$model" --out "$folder" "${again[@]}"
}
compare() {
  local folder=$1
  shift
  measure "$folder" compare --no-plot "$@"
}
# The run's table of accuracy and bytes, as text and as JSON: its folder's name, then options of plot_tradeoff.py.
tradeoff() {
  local name=$1
  shift
  "$plotting" "$root/studies/scripts/plot_tradeoff.py" "$out/$name" "$@" --json "$out/$name.json" | tee "$out/$name.part"
  mv "$out/$name.part" "$out/$name.md"
}
# A profile: the JSON appears when it is whole.
profile() {
  local file=$out/$1.json kind=$2
  shift 2
  [ -e "$file" ] || "$tandem" profile "$kind" --model "$model" --out "$file" "$@" | tee "$out/$(basename "$file" .json).txt"
}
collect() {
  local folder=$out/data-$1 again=()
  shift
  [ ! -e "$folder/manifest.json" ] || again=(--resume)
  "$tandem" fluxion collect --model "$model" --out "$folder" --tau 0.02,0.05,0.1,0.15,0.2 "${again[@]}" "$@"
}
train() {  # folder in OUT, rule, options
  local folder=$out/$1 policy=$2
  shift 2
  [ ! -e "$folder/$policy.safetensors" ] || return 0
  mkdir -p "$folder"
  "$python" "$root/methods/fluxion/train.py" --policy "$policy" --out "$folder/part" --report "$folder/$policy.json" "$@"
  mv "$folder/part" "$folder/$policy.safetensors"
}

measure_accuracy() {
  compare accuracy --methods full --tasks single,multikey --lengths 512,1K,2K,4K,8K --samples 100
  compare accuracy-16k --methods full --tasks single --lengths 16K --samples 100
}
measure_tasks() {
  compare tasks --methods full --tasks niah_multivalue,niah_multiquery,vt,cwe,fwe,qa_1,qa_2 --lengths 1K,2K,4K,8K --samples 100
}
measure_heads() {
  profile heads-2k heads
  profile heads-4k heads --length 4K --samples 5
  [ -z "${TEXT:-}" ] || profile heads-text heads --text-file "$TEXT" --samples 10
}
measure_ahead() { profile ahead layer-ahead; }
measure_recall() {
  profile recall scout-recall
  "$plotting" "$root/scripts/plot_reproduction.py" "$out/recall.json" "$out/recall.svg"
}
measure_shift() {
  profile shift query-shift
  "$plotting" "$root/scripts/plot_reproduction.py" "$out/shift.json" "$out/shift.svg"
}
measure_flops() {
  compare flops --hw asyncspade-a100 --lengths 1024 --samples 10 \
    --methods full,tova:budget=128,quest:budget=128,asyncspade:budget=128,asyncspade:budget=128,theta=1
  "$plotting" "$root/scripts/plot_reproduction.py" "$out/flops/flops.json" "$out/flops.svg"
}
measure_predictors() {
  collect a --lengths 640,1K,2K --samples 8
  collect b --lengths 4K,8000 --samples 2
  collect c --lengths 768,1K,1536,2K --samples 8 --seed 161803
  collect d --lengths 640,1K,1536,2K --samples 8 --seed 662607
  collect e --lengths 3K,4K,6K --samples 3 --seed 137035
  collect f --lengths 768,1K,2K,3K --samples 8 --seed 141421
  # Chosen for the embedded model, on samples of seed 7: studies/notes/fluxion-accuracy.md has what other settings lose.
  local rule settings=(--quantile 0.985 --miss 200 --data "$out"/data-{a,b,c,d,e,f})
  train fluxion fluxion "${settings[@]}" ${VECTOR:+--vector "$VECTOR"}
  for rule in output score; do train fluxion "$rule" "${settings[@]}"; done
}
measure_judge() {
  collect new --lengths 640,1K,2K --samples 2 --seed 577215
  for policy in fluxion output score; do
    "$python" "$root/methods/fluxion/train.py" --data "$out/data-new" --judge "$out/fluxion/$policy.safetensors" --report "$out/judged-$policy.json"
  done
}
measure_regret() {
  compare regret --head-errors --methods "full,fluxion:heads=oracle,line=cover,fluxion:heads=oracle,$fluxion,hybrid-fixed"
  tradeoff regret
}
measure_near() {
  compare near --methods "full,$fluxion,hybrid-fixed,hybrid-fixed:budget=0.1" --lengths 2K,3K --samples 100 --seed 2026
  tradeoff near --by-length
  compare near-attended --methods "full,$fluxion,union=attended" --lengths 2K,3K --samples 100 --seed 2026
  tradeoff near-attended --by-length
}
measure_far() {
  compare far --methods "full,$fluxion,hybrid-fixed,hybrid-fixed:budget=0.1" --lengths 1K,4K,6K,8K,16K --samples 10 --seed 2027
  tradeoff far --by-length
}
measure_ablations() {
  compare ablations --samples 10 \
    --methods "full,$fluxion,$fluxion,budgets=output,$fluxion,budgets=score,$fluxion,stage=fixed16,$fluxion,stage=fixed32,$fluxion,stage=dynamic,$fluxion,union=attended,hybrid-fixed,hybrid-fixed:union=attended"
  tradeoff ablations "$out/ablations.svg"
}
measure_readme() { measure readme compare --as llama-3.1-8b --batch 16 --context 32K --workload published; }
measure_recorded() { compare recorded --as llama-3.1-8b --batch 16 --context 32K --workload recorded; }
measure_means() {
  local methods=full method
  for method in quest:budget=512 quest:budget=256 hybrid-fixed:budget=0.05 scoutattention:budget=512; do methods+=,$method,$method,digest=mean; done
  compare means --methods "$methods" --tasks single,multikey --lengths 1K,2K --samples 20
}
measure_layers() {
  local scout=scoutattention:budget=512 shape=$model
  [ -d "$model" ] || shape=$root/models/${model/embedded/deep}
  compare layers --methods "full,$scout,$scout,true_layers=2,$scout,ahead=none"
  # Not UUIDs among UUIDs: a wrong answer may run on, and other steps would be compared.
  compare layers-recorded --methods "full,$scout,$scout,recall=1" --tasks single,niah_multikey_1,niah_multikey_2 --lengths 2K --samples 5 --as "$shape" --context 2K --batch 1 --workload recorded
}
measure_equal() { measure equal compare --equal touched-bytes=0.2,0.35,0.5 --samples 20 --batch 20; }
measure_needle() { measure needle eval needle; }
hgca_grid() {
  local methods=full ratio beta
  for ratio in 0.25 0.5 0.75; do
    for beta in 0.25 0.5 0.75 1; do methods+=,hgca:device_kv=$ratio,beta=$beta; done
  done
  echo "$methods,hgca:device_kv=0.25,beta=1000000"
}
measure_hgca() {
  local methods more
  methods=$(hgca_grid)
  for more in beta=1,dense_layers=1 beta=0.5,pad=attended beta=1,pad=attended; do methods+=,hgca:device_kv=0.25,$more; done
  measure hgca-perplexity eval perplexity --no-plot --precision f32 --windows 32 --methods "$methods"
  methods=full
  for more in 0.25,beta=0.05 0.25,beta=0.5 0.25,beta=1 0.25,beta=2 0.05,beta=0.5 0.05,beta=1 0.05,beta=2 0.25,beta=1,dense_layers=1 \
    0.25,beta=0.05,pad=attended 0.25,beta=0.5,pad=attended; do
    methods+=,hgca:device_kv=$more
  done
  methods+=,hybrid-fixed:budget=0.02,hybrid-fixed:budget=0.02,union=attended,hybrid-fixed:budget=0.05,hybrid-fixed:budget=0.2,streaming
  compare hgca-needles --precision f32 --methods "$methods" --tasks single,multikey --lengths 1K --samples 60
}

# Methods that give up the same tokens stand here once. Budgets of 512 tokens, since the published ones hold all of 2K.
list() { local IFS=,; echo "$*"; }
every_method=$(list full streaming h2o quest:budget=512 tova:budget=512 hybrid-fixed hybrid-fixed:budget=0.2 hgca hgca:beta=0.25 \
  scoutattention:budget=512 scoutattention:budget=512,ahead=none fluxion:heads=oracle infinigen infinigen:alpha=8 asyncspade:budget=512)
other_settings=$(list full quest:budget=512,dense_layers=2 scoutattention:budget=1024 scoutattention:budget=512,pred_norm=own \
  scoutattention:budget=512,scope=kv_head fluxion:heads=oracle,tau=0.05 hgca:dense_layers=1 infinigen:alpha=12 infinigen:alpha=16 \
  infinigen:alpha=1000000,budget=512 infinigen:scope=query_head infinigen:alpha=8,scope=query_head asyncspade:budget=1024 asyncspade:budget=512,weights=raw)
measure_ruler() {
  compare ruler --methods full --tasks all --lengths 1K,2K,4K --samples 10 --ruler-essays "$ESSAYS" --ruler-qa "$QA"
}
on_text() { measure "$1" eval perplexity --text "$TEXT" --context 2K --new 128 --windows 24 --methods "$2"; }
measure_text() { on_text text "$every_method"; }
measure_grid() { on_text grid "$(hgca_grid)"; }
measure_variants() { on_text variants "$other_settings"; }
in_essays() {  # run, methods, length
  compare "$1" --methods "$2" --tasks single,niah_multikey_1 --lengths "$3" --samples 20 --ruler-essays "$ESSAYS"
}
measure_essays() {
  in_essays essays "$every_method" 2K
  in_essays essays-apart "$(list full infinigen:scope=query_head infinigen:alpha=8,scope=query_head)" 2K
}

measure_scout() {
  local methods=full,scoutattention:budget=512 variant
  for variant in true_layers=2 true_layers=3 true_layers=10 ahead=none recall=1; do methods+=,scoutattention:budget=512,$variant; done
  on_text scout-text "$methods"
  in_essays scout-essays "$methods" 2K
}
learned=fluxion:heads=$out/learned
# A text's steps are as far from the prompt as those that are judged.
measure_learned() {
  collect text-1k --text-file "$LEARN" --lengths 1K --samples 64 --decode-steps 128
  collect text-2k --text-file "$LEARN" --lengths 2K --samples 96 --decode-steps 128
  collect ruler --lengths 1K,2K --samples 4
  train learned fluxion --data "$out"/data-{text-1k,text-2k,ruler}
  local methods=full,fluxion:heads=oracle,line=cover,fluxion:heads=oracle,$learned,hybrid-fixed:budget=0.2,hybrid-fixed
  on_text learned-text "$methods"
  in_essays learned-essays "$methods" 2K
}
measure_longer() {
  [ -e "$out/learned/fluxion.safetensors" ] || { echo "measure_model.sh: part 'longer' comes after 'learned', whose predictor it takes." >&2; exit 2; }
  local methods=full,tova:budget=512 budget
  for budget in 512 1024; do methods+=,$(list {quest,scoutattention}:budget=$budget); done
  methods+=,$(list asyncspade:budget=1024 hgca hybrid-fixed:budget=0.2 "$learned")
  in_essays longer "$methods" 4K
}

for part in "${parts[@]}"; do
  echo "=== $part"
  "measure_$part"
done

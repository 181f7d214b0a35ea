# shellcheck shell=bash
# What remote_check.sh and remote_figures.sh run on the chosen machine, after both.sh and a line of arguments. On stdin
# come words: "go" when the book is copied, "alive" every other second. When they stop, the caller has ended or the
# connection is lost, and the program here ends too.
#
#   check|figures WORKDIR CALLER CHECKOUT [NAME …]   take WORKDIR, wait for the copy, run the program
#   fetch WORKDIR RUN                                write what a run left to stdout, as a tar archive, and remove it
#
# Exit code: 0 the program has ended, however, and results/RUN says how; 2 it could not be started, stderr says why.
# WORKDIR holds: the marker, lock (a link that names who runs here), book/ (the copy), results/.
set -euo pipefail
unset MAKEFLAGS MFLAGS MAKELEVEL

MARKER=.made-by-remote-scripts
SILENCE=60 # seconds without a word after which the caller counts as gone
PATIENCE=75 # fifths of a second for the program to end by itself once told
work='' link='' job='' watch=''

refuse() {
    printf '%s: %s\n' "$(uname -n)" "$*" >&2
    exit 2
}

main() {
    local kind=$1
    find_workdir "$2" "${4-}"
    case $kind in
        fetch) fetch "$3" ;;
        check | figures) serve "$kind" "$3" "${@:5}" ;;
    esac
}

# Set `work` to WORKDIR as a whole path; refuse one that is or may be somebody's. It is made if it is not there.
find_workdir() {
    local given=$1 checkout=$2 path above
    # shellcheck disable=SC2088 # a shell would have expanded ~; here it is as it was typed
    case $given in
        '~') path=${HOME:?} ;;
        '~/'*) path=${HOME:?}/${given#'~/'} ;;
        '~'*) refuse "$given: write ~/… or a whole path; other people's home folders are not looked up" ;;
        /*) path=$given ;;
        *) path=$PWD/$given ;;
    esac
    if [ -d "$path" ]; then above=$path; else above=$(nearest_folder "$path"); fi
    above=$(cd -P -- "$above" && pwd -P) || refuse "cannot enter $path"
    if [ -n "$checkout" ]; then refuse_checkout "$above" "$path" "$checkout"; fi
    [ -d "$path" ] || mkdir -p -- "$path" 2>/dev/null || refuse "cannot make the folder $path"
    work=$(cd -P -- "$path" && pwd -P) || refuse "cannot enter $path"
    case $work in
        / | "$(cd -P -- "${HOME:-/}" && pwd -P)") refuse "$work is no scratch folder: name another" ;;
    esac
    claim
}

# Print the nearest folder above a path that is not there; refuse what stands in the way of making it.
nearest_folder() {
    local path=$1
    case $path/ in */../*) refuse "$path is not there, and .. in it may lead anywhere: write it without" ;; esac
    while [ ! -d "$path" ]; do
        if [ -e "$path" ] || [ -L "$path" ]; then refuse "$path is not a folder"; fi
        path=$(dirname -- "$path")
    done
    printf '%s\n' "$path"
}

# Refuse a WORKDIR in, at or above the checkout itself.
refuse_checkout() {
    local above=$1 path=$2 checkout=$3
    case $above/ in "$checkout"/*) refuse "$path lies in the checkout $checkout: name a folder elsewhere" ;; esac
    case $checkout/ in "${above%/}"/*) [ ! -d "$path" ] || refuse "$path holds the checkout $checkout: name another" ;; esac
}

# Mark an empty folder as one of ours; refuse one that holds what these scripts did not put there.
claim() {
    local inside
    if [ -f "$work/$MARKER" ] && [ ! -L "$work/$MARKER" ]; then
        for inside in book results; do
            # The copy deletes what the checkout does not have; through a link it would do so elsewhere.
            if [ -L "$work/$inside" ] || { [ -e "$work/$inside" ] && [ ! -d "$work/$inside" ]; }; then
                refuse "$work/$inside is a link or no folder: these scripts have not made it, remove it"
            fi
        done
        [ ! -d "$work/lock" ] || refuse "$work/lock is a folder: these scripts have not made it, remove it"
        return
    fi
    inside=$(ls -A -- "$work") || refuse "cannot read $work"
    [ -z "$inside" ] || refuse "$work holds files that are not from these scripts: name a new or an empty folder"
    echo 'A scratch folder of remote_check.sh and remote_figures.sh. It may be removed as a whole.' \
        2>/dev/null >"$work/$MARKER" || refuse "cannot write to $work"
}

# Write what a run left to stdout, then remove it.
fetch() {
    cd -- "$work/results/$1"
    tar -cf - .
    rm -rf -- "$work/results/$1"
}

# Take WORKDIR, say where the copy goes, run the program once it is there.
serve() {
    local kind=$1 caller=$2 run results code=0
    shift 2
    command -v rsync >/dev/null || refuse 'there is no rsync here: install it'
    if [ -z "${REMOTE_PYTHON-}" ]; then command -v make >/dev/null || refuse 'there is no make here: install it'; fi
    trap clean_up EXIT
    trap 'exit 143' HUP TERM
    take_lock "$caller"
    run=$(date -u +%Y%m%dT%H%M%SZ)-$$
    results=$work/results/$run
    forget_old_results
    { mkdir -p -- "$work/book" "$work/results" && mkdir -- "$results"; } || refuse "cannot write to $work"
    # A path without blanks, whatever WORKDIR is called.
    link=$(own_folder /tmp/book-copy) || refuse 'cannot make a folder in /tmp'
    ln -s "$work/book" "$link/book"
    printf 'ready %s %s\n' "$link" "$run"
    exec 3<&0
    await_go || exit 143

    set -m # a process group of its own, so that all of it can be told to end
    run_program "$kind" "$results" "$@" </dev/null 3<&- &
    job=$!
    set +m
    watch "$job" "$link/gone" <&3 >/dev/null 2>&1 &
    watch=$!
    wait "$job" || code=$?
    if [ -e "$link/gone" ]; then
        wait "$watch" || true # it sees to it that nothing is left
        rm -rf -- "$results"
        code=143
    fi
    job=''
    exit "$code"
}

# Make the lock, a link that says who holds it; one whose process is gone is replaced.
take_lock() {
    local lock=$work/lock me owner
    me="process $$ on $(uname -n), started by $1, $(date -u '+%Y-%m-%d %H:%M UTC')"
    if ln -sn "$me" "$lock" 2>/dev/null; then return; fi
    owner=$(readlink "$lock" || true)
    if [ -n "$owner" ] && holder_is_gone "$owner" && mv -- "$lock" "$lock.$$" 2>/dev/null; then
        # Another may have replaced it since: what was moved away has to be what was judged.
        if [ "$(readlink "$lock.$$")" = "$owner" ]; then
            rm -f -- "$lock.$$"
            printf '%s: taking over %s from a run that did not end well (%s)\n' "$(uname -n)" "$work" "$owner" >&2
            if ln -sn "$me" "$lock" 2>/dev/null; then return; fi
        else
            mv -- "$lock.$$" "$lock"
        fi
        owner=$(readlink "$lock" || true)
    fi
    refuse "$work is in use by ${owner:-a run that is just starting or ending}; if that is not so, remove $lock"
}

# Return whether the holder of a lock was a process of this machine that has ended.
holder_is_gone() {
    local number=${1#process } machine=${1#* on }
    [ "${machine%%,*}" = "$(uname -n)" ] && is_gone "${number%% *}"
}

# Keep what the last two runs left and nobody fetched.
forget_old_results() {
    [ -d "$work/results" ] || return 0
    # shellcheck disable=SC2012 # these names are made above
    ls -1t -- "$work/results" | tail -n +3 | while IFS= read -r name; do rm -rf -- "$work/results/${name:?}"; done
}

# Wait for the word that the copy is complete.
await_go() {
    local word
    while IFS= read -r -t "$SILENCE" word <&3; do
        if [ "$word" = go ]; then return 0; fi
    done
    return 1
}

# End a process group as soon as the words stop.
watch() {
    local word
    while IFS= read -r -t "$SILENCE" word; do :; done
    : >"$2" || true
    end_group "$1"
}

# Tell a process group to end, wait for it, and kill what does not.
end_group() {
    local left=$PATIENCE
    kill -TERM -- "-$1" 2>/dev/null || return 0
    while [ "$left" -gt 0 ] && kill -0 -- "-$1" 2>/dev/null; do
        sleep 0.2
        left=$((left - 1))
    done
    kill -KILL -- "-$1" 2>/dev/null || true
}

# Prepare the environment, say what the machine is, run the program, keep what it printed and its exit code.
run_program() {
    local kind=$1 results=$2 code
    shift 2
    trap : TERM # the program is told as well; this shell stays to note how it ends
    cd -- "$work/book"
    find_python
    describe | tee "$results/host.txt" >&2
    set +e
    case $kind in
        check) run_check "$results" "$@" ;;
        figures) run_figures "$results" "$@" ;;
    esac 2>&1 | (trap '' TERM && exec tee "$results/output.txt")
    code=${PIPESTATUS[0]}
    set -e
    echo "$code" >"$results/exit-code"
}

# Set `python` to the Python that runs the book: the one that was named, or that of the environment make builds.
find_python() {
    local stamp=.venv/.built-from-lock
    if [ -n "${REMOTE_PYTHON-}" ]; then
        python=$REMOTE_PYTHON
        # shellcheck disable=SC2088
        case $python in '~/'*) python=${HOME:?}/${python#'~/'} ;; esac
        command -v "$python" >/dev/null || refuse "REMOTE_PYTHON=$REMOTE_PYTHON is no program here"
    else
        # make compares times, and the clocks of two machines differ; the stamp is a copy of the lock it was made from.
        if ! cmp -s requirements.lock "$stamp"; then
            rm -f "$stamp"
            make --no-print-directory "$stamp" >&2 || refuse 'the environment could not be built'
        fi
        python=$PWD/.venv/bin/python
    fi
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        refuse "$python does not run or is older than Python 3.11, which the book needs"
}

describe() {
    printf '%s: %s, %s\n' "$(uname -n)" "$(uname -sm)" "$("$python" -V)"
    "$python" scripts/remote/gpu.py
}

run_check() {
    local results=$1
    shift
    "$python" scripts/check_chapters.py ${JOBS:+--jobs "$JOBS"} --junit "$results/junit.xml" -- "$@"
}

# Draw the chosen figures anew, and keep those that were drawn: a script that fails leaves no old one in its place.
run_figures() {
    local results=$1 stems stem links code=0
    shift
    links=$(written_to figures chapters/recorded -type l)
    [ -z "$links" ] || refuse "a link leads to where figures would be drawn or runs recorded: $links"
    stems=$("$python" scripts/make_figures.py --list -- "$@") || return
    : >"$results/started"
    for stem in $stems; do rm -f -- "figures/${stem//_/-}.svg"; done
    if [ -n "${RECORD-}" ]; then record "$stems" || code=1; fi
    "$python" scripts/make_figures.py -- "$@" || code=$?
    mkdir "$results/figures"
    for stem in $stems; do
        if [ -f "figures/${stem//_/-}.svg" ]; then cp -p "figures/${stem//_/-}.svg" "$results/figures/"; fi
    done
    written_to figures/data chapters/recorded -type f -newer "$results/started" | while IFS= read -r file; do
        mkdir -p "$results/$(dirname "$file")"
        cp -p "$file" "$results/$file"
    done
    rm -f "$results/started"
    return "$code"
}

# Run the chosen scripts that know --record, so that they measure their data anew.
record() {
    local stem code=0
    for stem in $1; do
        grep -q -e '--record' "figures/$stem.py" || continue
        echo "recording the data of $stem"
        "$python" "figures/$stem.py" --record || { echo "figures/$stem.py: error: --record failed" && code=1; }
    done
    return "$code"
}

# Find in two folders, of which either may be absent, what the rest of the arguments says.
written_to() {
    local folder
    for folder in "$1" "$2"; do
        [ ! -d "$folder" ] || find "$folder" "${@:3}"
    done
}

# shellcheck disable=SC2317 # a trap calls it
clean_up() {
    if [ -n "$job" ]; then end_group "$job"; fi
    if [ -n "$watch" ]; then # it would write into the folder that is removed next
        kill "$watch" 2>/dev/null || true
        wait "$watch" 2>/dev/null || true
    fi
    if [ -n "$link" ]; then rm -rf -- "$link"; fi
    case $(readlink "$work/lock" || true) in "process $$ on $(uname -n),"*) rm -f -- "$work/lock" ;; esac
}

main "$@"

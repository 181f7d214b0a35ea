# shellcheck shell=bash
# What remote_check.sh and remote_figures.sh share: the part that runs where they are started. It copies the checkout,
# starts there.sh on the chosen machine, passes on what that prints, and brings back what it leaves.
#
# One connection, the session, lasts for the whole run and holds it alive: there.sh reads words from it, and ends the
# program when they stop, for whatever reason. fd 9 writes those words, fd 8 reads what the session prints, fd 7 is
# open as long as this script lives.
# Everything here also runs in the bash 3.2 of macOS.

# The number of a stream that was closed goes to the next file opened, the script itself for one.
for fd in 0 1 2; do
    if [ ! -e "/dev/fd/$fd" ] || [ "/dev/fd/$fd" -ef "${BASH_SOURCE[1]}" ]; then eval "exec $fd<>/dev/null"; fi
done
# What a caller may have exported and changes how bash, or a program used here, reads what follows. -p leaves out
# functions too: a caller's own cd or rm.
UNSET='-u SHELLOPTS -u BASHOPTS -u BASH_ENV -u ENV -u BASH_COMPAT -u POSIXLY_CORRECT -u CDPATH -u GLOBIGNORE'
UNSET="$UNSET -u FUNCNEST -u TMOUT -u GREP_OPTIONS -u TAR_OPTIONS -u QUOTING_STYLE"
# shellcheck disable=SC2086 # words
case $- in *p*) ;; *) exec env $UNSET bash -p "${BASH_SOURCE[1]}" "$@" ;; esac

HERE=$(cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
CHECKOUT=$(cd -P "$HERE/../.." && pwd -P)
BEAT=2 # seconds between two signs of life
# Left alone by the copy: what runs there have built. With / at the end a folder alone is meant: a link in its place,
# through which the run would write elsewhere, is removed. The model is only read.
KEPT=(/.venv/ /.cache/ /build/ /labs/model __pycache__/ '*.egg-info/')
PASSED=(PYTHON JOBS RECORD REMOTE_PYTHON AGENTRL_MODEL_DIR CUDA_VISIBLE_DEVICES GITHUB_ACTIONS)
scratch='' session='' stopped='' ready=''
# shellcheck source-path=SCRIPTDIR source=both.sh
source "$HERE/both.sh"

say() { printf '%s: %s\n' "$NAME" "$*" >&2; }

# Say what is wrong and end with exit code 2.
refuse() {
    say "$*"
    exit 2
}

remote_main() {
    local kind=$1
    NAME=remote_$kind
    shift
    case ${1-} in -h | --help) print_help || true && exit 0 ;; esac
    [ $# -ge 1 ] || refuse "which folder? Usage: [REMOTE=user@host] scripts/$NAME.sh WORKDIR [NAME …]"
    check_caller "$1"
    trap clean_up EXIT
    trap 'stop 129' HUP
    trap 'stop 130' INT
    trap 'stop 143' TERM
    scratch=$(own_folder "${TMPDIR:-/tmp}/book-remote") || refuse "cannot make a folder in ${TMPDIR:-/tmp}"
    write_ssh
    collect
    open_session "$kind" "$@"
    await_ready
    copy
    stream
    bring_back "$kind" "$1"
}

# Print the comment at the top of the script that was started.
print_help() { sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p;}' "$CHECKOUT/scripts/$NAME.sh"; }

# Refuse what cannot work before anything is started.
check_caller() {
    local workdir=$1 program said
    case $workdir in
        '') refuse 'WORKDIR is empty: name a scratch folder' ;;
        *$'\n'*) refuse 'WORKDIR holds a line break: name another folder' ;;
    esac
    case ${REMOTE-} in
        -* | *[!A-Za-z0-9_.@%+-]*)
            refuse "REMOTE=$REMOTE is not user@host; a port or a key goes into REMOTE_SSH, anything else into ~/.ssh/config" ;;
    esac
    for program in git tar rsync; do
        command -v "$program" >/dev/null || refuse "this machine has no $program: install it"
    done
    if [ -n "${REMOTE-}" ] && [ -z "${REMOTE_SSH-}" ]; then
        command -v ssh >/dev/null || refuse 'this machine has no ssh: install it, or name another command in REMOTE_SSH'
    fi
    # A hook of git sets variables that would point git at another repository.
    # shellcheck disable=SC2046
    unset $(git rev-parse --local-env-vars)
    if [ "$(git -C "$CHECKOUT" rev-parse --is-inside-work-tree 2>/dev/null)" != true ]; then
        said=$(git -C "$CHECKOUT" rev-parse --is-inside-work-tree 2>&1) || true
        refuse "git has to say which files of $CHECKOUT are the book's, and does not take it for a checkout: $said"
    fi
}

# Write the ssh command into a file of its own: rsync splits an option at blanks, a program's name it leaves alone.
write_ssh() {
    mkdir "$scratch/bin"
    printf '#!/usr/bin/env bash\nexec %s -o ServerAliveInterval=15 -o ServerAliveCountMax=4 "$@"\n' \
        "${REMOTE_SSH:-ssh}" >"$scratch/bin/book-ssh"
    chmod +x "$scratch/bin/book-ssh"
}

# Copy what belongs to the book, as it is now: tracked files that are still there, untracked ones git does not ignore.
collect() {
    local name
    mkdir "$scratch/book"
    (cd "$CHECKOUT" && git ls-files -co --exclude-standard -z | while IFS= read -r -d '' name; do
        if [ -e "$name" ] || [ -L "$name" ]; then printf '%s\0' "$name"; fi
    done) >"$scratch/names" || refuse "git cannot list the files of $CHECKOUT"
    [ -s "$scratch/names" ] || refuse "git knows no files in $CHECKOUT, or ignores them all"
    (cd "$CHECKOUT" && tar --null -T "$scratch/names" -cf -) | tar -xpf - -C "$scratch/book" ||
        refuse "cannot copy the checkout $CHECKOUT"
}

# Start bash on the chosen machine, with a script from stdin up to a null byte: what a caller has typed passes through
# no login shell. (`bash -s` would do the same, but a bash 3.2 breaks when its script goes on to read from stdin.)
far() {
    local take="IFS= read -r -d \"\" script && exec env $UNSET bash -p -c \"\$script\""
    if [ -n "${REMOTE-}" ]; then
        exec "$scratch/bin/book-ssh" "$REMOTE" "exec bash -c '$take'"
    fi
    exec bash -c "$take"
}

# Print the script for the other side: its arguments, the variables it may see, the script itself, and a null byte.
script_for_there() {
    local word name
    printf 'set --'
    for word in "$@"; do printf ' %s' "$(quoted "$word")"; done
    printf '\n'
    for name in "${PASSED[@]}" $(compgen -e | grep '^PIP_' || true); do
        if [ -n "${!name+set}" ]; then printf 'export %s=%s\n' "$name" "$(quoted "${!name}")"; fi
    done
    cat "$HERE/both.sh" "$HERE/there.sh"
    printf '\0'
}

# Print a text in single quotes, as any shell reads it: what printf %q does differs from one bash to the next.
quoted() {
    local rest=$1 done=''
    while [ "${rest#*\'}" != "$rest" ]; do
        done+=${rest%%\'*}"'\\''"
        rest=${rest#*\'}
    done
    printf "'%s'" "$done$rest"
}

# Start the session and a child that gives a sign of life on it for as long as this script lives.
open_session() {
    local kind=$1 workdir=$2 own='' caller
    shift 2
    caller="${USER:-$(id -un)} at $(uname -n)"
    # On this machine Ctrl-C would reach the program past this script, but for a process group of its own. An ssh must
    # stay in this one, to ask for a password; as a background process it ignores Ctrl-C anyway.
    if [ -z "${REMOTE-}" ]; then own=$CHECKOUT && set -m; fi
    mkfifo "$scratch/words" "$scratch/text"
    far <"$scratch/words" >"$scratch/text" &
    session=$!
    set +m
    exec 9>"$scratch/words" 8<"$scratch/text"
    trap '' PIPE # a session that is gone shows by its exit code
    script_for_there "$kind" "$workdir" "$caller" "$own" "$@" >&9 2>/dev/null || true
    mkfifo "$scratch/life"
    beat <"$scratch/life" >&9 2>/dev/null 8<&- 9>&- &
    exec 7>"$scratch/life"
}

# Give a sign of life every few seconds until stdin ends, which nothing but this script holds open: it ends however
# this script ends. Then reading returns at once, and only then; a bash before 4 tells no other way.
beat() {
    local before=-1
    while [ "$SECONDS" != "$before" ] && echo alive; do
        before=$SECONDS
        read -r -t "$BEAT" _ || true
    done
}

# Wait until the other side has taken WORKDIR; what a login prints before that is passed on.
await_ready() {
    local line
    while IFS= read -r line <&8; do
        case $line in
            'ready '*)
                ready=${line#ready }
                return ;;
        esac
        printf '%s\n' "$line" >&2
    done
    end_early
}

# Copy the book. The path to copy to is a link without blanks, which every version of rsync understands alike.
copy() {
    local to="${ready%% *}/book/" name code keep=()
    if [ -n "${REMOTE-}" ]; then to="$REMOTE:$to"; fi
    for name in "${KEPT[@]}"; do keep+=("--exclude=$name"); done
    PATH="$scratch/bin:$PATH" rsync -rlptz --checksum --delete "${keep[@]}" -e book-ssh "$scratch/book/" "$to" \
        </dev/null 7>&- 8<&- 9>&- &
    wait_for $!
    code=$waited
    if [ -n "$stopped" ]; then end_early; fi
    [ "$code" = 0 ] && return
    kill -0 "$session" 2>/dev/null || end_early
    refuse "the copy to $(place) failed (rsync ended with $code)"
}

# Start the program and pass on what it prints until the session ends.
stream() {
    local code
    echo go >&9 2>/dev/null || true
    (trap - PIPE && exec cat <&8) 7>&- 9>&- &
    wait_for $!
    if [ "$waited" != 0 ] && [ -z "$stopped" ]; then
        if [ "$waited" = 141 ]; then stop 141; else stop 2; fi
        cat <&8 >/dev/null # what the other side has to say has to go somewhere, or it would not end
    fi
    wait_for "$session"
    code=$waited
    if [ -n "$stopped" ] || [ "$code" != 0 ]; then end_early "$code"; fi
    session=''
}

# Wait for a child, through signals that are dealt with meanwhile, and set `waited` to its exit code.
waited=0
wait_for() {
    while :; do
        wait "$1" && waited=0 || waited=$?
        kill -0 "$1" 2>/dev/null || return 0
    done
}

# The session has ended, or has to, before there is anything to bring back: say why and exit.
end_early() {
    hang_up
    if [ $# = 0 ]; then wait_for "$session"; fi
    local code=${1:-$waited}
    session=''
    if [ -n "$stopped" ]; then
        say "stopped; the run in $(place) has ended too"
        exit "$stopped"
    fi
    case $code in
        2) exit 2 ;; # the other side has said why
        127) refuse "$(place) has no bash, or REMOTE_SSH is no command" ;;
    esac
    if [ -z "$ready" ]; then
        say "no connection to $(place) (exit code $code)"
    else
        say "the connection to $(place) was lost; the run there ends with it and leaves no report"
    fi
    exit 255
}

# Fetch what the run left into a folder of its own, name it, and exit as the program did.
bring_back() {
    local kind=$1 workdir=$2 run=${ready##* } home=$CHECKOUT/build/remote incoming='' to code count=1 suffix=''
    if ! mkdir -p "$home" || ! incoming=$(own_folder "$home/.incoming") ||
        ! (script_for_there fetch "$workdir" "$run" | (far) | tar -xf - -C "$incoming") || [ ! -s "$incoming/exit-code" ]; then
        if [ -n "$incoming" ]; then rm -rf "$incoming"; fi
        say "the report could not be brought back from $(place); it is there, in results/$run of WORKDIR"
        exit 255
    fi
    to=$home/$(host)-$(date -u +%Y%m%d-%H%M%S)
    until mkdir "$to$suffix" 2>/dev/null; do
        [ -e "$to$suffix" ] || refuse "cannot make the folder $to$suffix"
        count=$((count + 1)) && suffix=-$count
    done
    to=$to$suffix
    mv "$incoming"/* "$to/"
    rmdir "$incoming"
    code=$(cat "$to/exit-code")
    if [ "$kind" = figures ]; then compare "$to"; fi
    say "exit code $code; everything it left is in $to"
    exit "$code"
}

# Say which of the figures drawn there are the ones that were sent, byte for byte.
compare() {
    local file name same=0 other=''
    for file in "$1"/figures/*.svg; do
        [ -e "$file" ] || continue
        name=figures/$(basename "$file")
        if cmp -s "$file" "$scratch/book/$name"; then same=$((same + 1)); else other="$other $name"; fi
    done
    say "figures drawn there that are the same bytes here: $same; others:${other:- none}"
}

# Return the machine's name as a part of a file name, and in words.
host() { printf '%s' "${REMOTE:-$(uname -n)}" | sed 's/.*@//' | tr -c 'A-Za-z0-9.-' '_'; }
place() { printf '%s' "${REMOTE:-this machine}"; }

# Let the other side know that nobody waits for it any more.
hang_up() {
    exec 7>&- 9>&-
}

# A signal: the first ends the run in good order, the second does not wait for that.
stop() {
    if [ -n "$stopped" ] && [ -n "$session" ]; then kill -KILL "$session" 2>/dev/null || true; fi
    if [ -z "$ready" ] && [ -n "$session" ]; then kill "$session" 2>/dev/null || true; fi
    stopped=$1
    hang_up
    [ -n "$session" ] || exit "$stopped"
}

clean_up() {
    hang_up
    if [ -n "$scratch" ]; then rm -rf "$scratch"; fi
}

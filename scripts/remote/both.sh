# shellcheck shell=bash
# What here.sh and there.sh both need. here.sh sources it; there.sh arrives on the other machine behind it.

# Make a folder PREFIX.MACHINE.PROCESS.XXXXXX for as long as this process lives and print its name. Those of processes
# that are gone, killed before they could clean up, are removed.
own_folder() {
    local mine folder process
    mine=$1.$(uname -n | tr -c 'A-Za-z0-9\n-' '_').
    for folder in "$mine"*; do
        process=${folder#"$mine"}
        if [ -O "$folder" ] && is_gone "${process%%.*}"; then rm -rf -- "$folder" || true; fi
    done
    mktemp -d "$mine$$.XXXXXX"
}

# Return whether there is no process with this number on this machine.
is_gone() {
    local said
    if said=$(LC_ALL=C kill -0 "$1" 2>&1); then return 1; fi
    case $said in *'No such process'*) return 0 ;; *) return 1 ;; esac
}

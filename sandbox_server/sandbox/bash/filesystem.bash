# Functions for file operations (filesystem.py, files.py). The first argument of each is a nonce; each ends its answer
# with "\n<nonce> <word>\n", after any data. `locate` sets the variables uid gid home path.
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 022
shopt -u sourcepath
exec {requests}<&0

say() { printf '\n%s %s\n' "$1" "$2"; }

whom() { # user -> uid gid home
  local name rest
  while IFS=: read -r name _ uid gid _ home rest; do
    [[ $name == "$1" || $uid == "$1" ]] && { home=${home:-/}; return 0; }
  done 2>/dev/null < /etc/passwd
  [[ $1 == root || $1 == 0 ]] && { uid=0 gid=0 home=/root; return 0; }
  return 1
}

clean() { # text -> path, without empty parts, . and ..
  local IFS=/ part out=()
  set -f
  for part in $1; do
    case $part in
      '' | .) ;;
      ..) ((${#out[@]})) && unset 'out[-1]' ;;
      *) out+=("$part") ;;
    esac
  done
  set +f
  path="/${out[*]}"
}

locate() { # nonce user text -> uid gid home path; answers an error if it cannot
  whom "$2" || { say "$1" user; return 1; }
  case $3 in
    /*)
      path=$3
      while [[ $path == */ && $path != / ]]; do path=${path%/}; done
      ;;
    '~' | '~/'*) clean "$home/${3:1}" ;;
    '~'*) say "$1" tilde; return 1 ;;
    *) clean "$home/$3" ;;
  esac
}

folders() { # nonce folder: creates it and its missing parents
  local up=${2:-/} missing=() some=() at err
  while [[ ! -e $up ]]; do
    missing+=("$up")
    up=${up%/*} up=${up:-/}
  done
  [[ -d $up ]] || { say "$1" notdir; return 1; }
  for ((at = ${#missing[@]} - 1; at >= 0; at--)); do
    some+=("${missing[at]}")
    ((at % 100)) && continue # a deep path's folders are longer together than a command line may be
    if ! err=$(mkdir -- "${some[@]}" 2>&1 && chown -- "$uid:$gid" "${some[@]}" 2>&1); then
      refuse "$1" "$err"
      return 1
    fi
    some=()
  done
}

refuse() { # nonce error-message: answers the word for a program's error
  case ${2##*: } in # the error's own text; names of files stand before it
    "No space left on device" | "Disk quota exceeded" | "File too large") say "$1" full ;;
    "Not a directory" | "File exists") say "$1" notdir ;;
    "File name too long" | "Invalid argument") say "$1" path ;;
    "Resource temporarily unavailable" | "Cannot allocate memory") say "$1" busy ;;
    *) say "$1" denied ;;
  esac
}

# name, kind, target's kind, size, mode, permissions, owner, group, mtime, inode, ctime; each ends in NUL
readonly FIELDS='%P\0%y\0%Y\0%s\0%m\0%M\0%u\0%g\0%T@\0%i\0%C@\0'

show() { # nonce namespace: prints the entry $path
  local links=()
  [[ -e $path || -L $path ]] || { say "$1" missing; return; }
  printf '%s\0' "$path"
  find "$path" -maxdepth 0 -printf "$FIELDS" 2>/dev/null || { say "$1" missing; return; }
  if [[ -L $path ]]; then
    printf '%s\0' "$(realpath -m -- "$path" 2>/dev/null || printf %s "$path")"
    find -L "$path" -maxdepth 0 -printf '%m\0' 2>/dev/null
  elif [[ $2 && -f $path ]]; then
    attributes "$2"
  fi
  say "$1" ok
}

attributes() { # namespace: prints the attributes of $path, as the beginning of a tar archive
  tar --format=posix --xattrs --xattrs-include="$1.*" -P -cf - -- "$path" 2>/dev/null | head -c 16384
}

stat() { # nonce user path namespace
  locate "$1" "$2" "$3" && show "$1" "$4"
}

list() { # nonce user path depth namespace
  locate "$1" "$2" "$3" || return
  [[ -e $path ]] || { say "$1" missing; return; }
  [[ -d $path ]] || { say "$1" notdir; return; }
  local top=$path
  printf '%s\0' "$path"
  find "$path/" -mindepth 1 -maxdepth "$4" -printf "$FIELDS" 2>/dev/null
  printf '\0'
  # links and their targets
  find "$path/" -mindepth 1 -maxdepth "$4" -type l -printf '%P\0' -exec realpath -mz -- {} \; 2>/dev/null
  printf '\0'
  if [[ $5 && -e /run/sandbox/attributes ]]; then
    find "$path/" -mindepth 1 -maxdepth "$4" -type f -printf '%P\0' 2>/dev/null | head -zn 1000 |
      while IFS= read -r -d '' name; do
        path=$top/$name
        attributes "$5" | head -c 16384 | grep -aq "SCHILY.xattr" || continue
        printf '%s\0%s\0' "$name" "$(attributes "$5" | base64 -w 0)"
      done
  fi
  say "$1" ok
}

mkfolder() { # nonce user path
  locate "$1" "$2" "$3" || return
  [[ -d $path ]] && { say "$1" exists; return; }
  [[ -e $path ]] && { say "$1" notdir; return; }
  folders "$1" "$path" && show "$1" ''
}

remove() { # nonce user path
  local err
  locate "$1" "$2" "$3" || return
  if [[ -e $path || -L $path ]]; then
    rm -rf -- "$path" 2>/dev/null || err=$(rm -rf -- "$path" 2>&1) || { refuse "$1" "$err"; return; }
  fi
  say "$1" ok
}

move() { # nonce user from to namespace
  local err from
  locate "$1" "$2" "$3" || return
  from=$path
  [[ -e $from || -L $from ]] || { say "$1" missing; return; }
  locate "$1" "$2" "$4" || return
  [[ -d $path && ! -L $path ]] && { say "$1" exists; return; }
  [[ $path == "$from"/* ]] && { say "$1" inside; return; }
  # rename(2) of a file to itself, or to another of its links, does nothing; mv refuses
  [[ $path == "$from" || ($path -ef $from && ! -L $path && ! -L $from) ]] && { show "$1" "$5"; return; }
  folders "$1" "${path%/*}" || return
  mv -fT -- "$from" "$path" 2>/dev/null || err=$(mv -fT -- "$from" "$path" 2>&1) || { refuse "$1" "$err"; return; }
  show "$1" "$5"
}

put() { # nonce user path namespace size-of-archive: opens the file and answers "go"; then the data follows
  local out err size new=1
  locate "$1" "$2" "$3" || return
  [[ $3 == */ || -d $path ]] && { say "$1" dir; return; }
  [[ -e $path && ! -f $path && ! -c $path ]] && { say "$1" special; return; }
  folders "$1" "${path%/*}" || return
  [[ -e $path ]] && new=
  # a failed step is repeated to get its message: a subshell each time would cost more than everything else
  { : > "$path"; } 2>/dev/null || err=$( { : > "$path"; } 2>&1) || { refuse "$1" "$err"; return; }
  if [[ ! (-O $path && -G $path && $uid == 0 && $gid == 0) ]]; then
    chown -- "$uid:$gid" "$path" 2>/dev/null || err=$(chown -- "$uid:$gid" "$path" 2>&1) ||
      { refuse "$1" "$err"; return; }
  fi
  [[ ! $new && -f $path ]] && bare "$4"
  { exec {out}> "$path"; } 2>/dev/null || { say "$1" denied; return; }
  say "$1" go
  while IFS= read -r size; do
    ((size)) || break
    head -c "$size" >&"$out" 2>/dev/null && continue
    # the amount of data still to come is unknown, so this channel ends; the next operation opens a new one
    (($? == 1 || $? == 153)) && say "$1" full || say "$1" busy
    exit
  done
  exec {out}>&-
  [[ $5 == 0 ]] || mark "$4" "$5"
  show "$1" "$4"
}

bare() { # namespace: removes the attributes of the empty file $path; tar and cp can only set them
  attributes "$1" | grep -aq "SCHILY.xattr" || return 0
  local other="$path.$RANDOM$RANDOM"
  cp --attributes-only --preserve=mode,ownership -- "$path" "$other" && mv -fT -- "$other" "$path"
} 2>/dev/null

mark() { # namespace size: sets the attributes in the archive of `size` bytes that follows
  local other
  other=$(mktemp -d -p "${path%/*}/") || { head -c "$2" > /dev/null; return; }
  head -c "$2" | tar --xattrs --xattrs-include="$1.*" -xf - -C "$other"
  cp --attributes-only --preserve=xattr --no-preserve=mode,ownership,timestamps -- "$other/attributes" "$path"
  rm -rf -- "$other"
  : > /run/sandbox/attributes
} 2>/dev/null

get() { # nonce user path
  local reader watcher word
  locate "$1" "$2" "$3" || return
  if [[ -d $path ]]; then say "$1" dir
  elif [[ ! -e $path ]]; then say "$1" missing
  elif [[ ! -f $path ]]; then say "$1" special
  else
    printf '%s\0' "$path"
    cat -- "$path" 2>/dev/null &
    reader=$!
    # no input comes before this is answered, so input or its end means that the channel was dropped midway and nobody
    # reads from cat, which would block for as long as the container lives
    { IFS= read -rN1 -u "$requests" _; kill -9 "$reader"; } 2>/dev/null &
    watcher=$!
    if wait "$reader" 2>/dev/null; then word=ok; else word=denied; fi
    # wait until it is dead: it would read the first byte of the next request
    { kill -9 "$watcher"; wait "$watcher"; } 2>/dev/null
    say "$1" "$word"
  fi
}

load() { # nonce path most: prints its first bytes
  if [[ -d $2 ]]; then say "$1" dir
  elif [[ ! -e $2 ]]; then if [[ -L $2 ]]; then say "$1" missing; else absent "$1" "$2"; fi
  elif [[ ! -f $2 ]]; then say "$1" special
  elif head -c "$3" -- "$2"; then say "$1" ok
  else say "$1" denied; fi
}

absent() { # nonce path: answers why it does not exist
  local up=$2
  while [[ $up == */* ]]; do
    up=${up%/*}
    [[ -e ${up:-/} && ! -d ${up:-/} ]] && { say "$1" notdir; return; }
  done
  say "$1" missing
}

store() { # nonce path size mode: writes the bytes that follow
  local dir=${2%/*} word=ok err
  if [[ -d $2 ]]; then word=dir
  elif [[ -e $2 && ! -f $2 ]]; then word=special
  elif ! mkdir -p -- "${dir:-/}" 2>/dev/null; then word=notdir
  elif [[ -e $2 && ! -w $2 ]] || ! : >> "$2"; then word=denied
  elif err=$(head -c "$3" 2>&1 > "$2"); then
    [[ $4 ]] && chmod "$4" -- "$2"
    say "$1" ok
    return
  else
    [[ $? == 153 || $err == *"No space left"* || $err == *quota* || $err == *"File too large"* ]] && word=full
    [[ $word == full ]] || word=denied
    say "$1" "$word"
    exit # how much of the data is still to come, nobody knows; the next operation opens a new channel
  fi 2>/dev/null
  head -c "$3" > /dev/null
  say "$1" "$word"
}

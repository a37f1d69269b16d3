//! One process at a time works on the starts of a system, and only root's can.

use crate::accelerate_switch::{System, records};
use crate::scene::has_tools;

#[test]
fn no_other_user_can_hold_the_lock_and_a_killed_holder_leaves_it() {
    let Some(system) = System::new() else { return };
    if !has_tools(&["setpriv", "flock", "perl"]) {
        return;
    }
    // What any user can hold: an abstract socket by any name, and the folder of the root.
    let ran = system.script(
        "lock=/run/headstart-accelerate.lock
        trap 'kill $socket $folder_lock $recording 2>/dev/null || true' EXIT
        nobody='setpriv --reuid=65534 --regid=65534 --clear-groups'
        mkfifo -m 666 /run/holds
        $nobody perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0);
            bind(S, pack(\"S a*\", AF_UNIX, \"\\0headstart-accelerate\")) or die $!;
            open(F, \">\", \"/run/holds\"); print F \"a socket\\n\"; close F; sleep 1000' & socket=$!
        timeout 60 head -n 1 /run/holds
        $nobody flock -n -F / sh -c 'echo a folder >/run/holds; exec sleep 1000' & folder_lock=$!
        timeout 60 head -n 1 /run/holds
        headstart accelerate record -- cat /note/update-initramfs >/dev/null
        headstart accelerate now --force >/dev/null; echo laid anew $?
        kill $socket $folder_lock
        stat -c 'mode %a of %u' $lock
        $nobody flock -n $lock true || echo not by another user
        $nobody rm -f $lock 2>/dev/null || echo nor removed

        headstart accelerate on --no-initramfs >/dev/null
        headstart-accelerate & recording=$!
        until test $(said running true) = 1; do :; done
        headstart accelerate now --force || echo refused
        echo it was process $recording >&2
        kill -KILL $recording; wait $recording || true
        echo running $(said running true)
        headstart accelerate now --force >/dev/null; echo laid anew $?
        # What was killed has left its trace, and the next recording removes it.
        headstart accelerate record -- true >/dev/null
        headstart accelerate off >/dev/null",
    );
    if !records(&ran) {
        return;
    }
    let expected = "a socket\na folder\nlaid anew 0\nmode 600 of 0\nnot by another user\nnor removed\nrefused\n\
                    running 0\nlaid anew 0\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), expected), "{}", ran.stderr);
    let recording = ran.stderr.split("it was process ").nth(1).and_then(|rest| rest.lines().next());
    let told = format!("this boot is recorded just now by process {} (", recording.expect("told"));
    assert!(ran.stderr.contains(&told), "{}", ran.stderr);
    system.scene.wait_until_clean();
}

#[test]
fn a_boot_waits_for_the_run_folder_of_its_system() {
    let Some(system) = System::new() else { return };
    // As in an initramfs, which takes what it has mounted to the root, where this process is already.
    let ran = system.script(
        "mkdir /early; mount --bind / /early
        for link in bin sbin lib lib64; do test -L /$link || mount --rbind /$link /early/$link; done
        for folder in usr dev program; do mount --rbind /$folder /early/$folder; done
        headstart accelerate on --no-initramfs >/dev/null
        chroot /early /program/headstart-accelerate & recording=$!
        slept() { grep ^voluntary /proc/$recording/status | tr -dc 0-9; }
        waits() { before=$(slept); until test $(slept) -gt $((before + 40)); do :; done; }
        waits; ls -A /early/run
        mount --rbind /proc /early/proc; mount --rbind /sys /early/sys
        waits; ls -A /early/run
        mount --bind /run /early/run
        looks=0
        until test $(said running true) = 1 || test $((looks += 1)) -gt 500; do :; done
        headstart accelerate off >/dev/null
        wait $recording; echo ended $?
        ls /run/*.lock
        umount /run; ls -A /run; echo nothing below",
    );
    if !records(&ran) {
        return;
    }
    let expected = "ended 0\n/run/headstart-accelerate.lock\nnothing below\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), expected), "{ran:?}");
    system.scene.wait_until_clean();
}

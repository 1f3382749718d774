;; WASI preview 1 for the renderer, without WASI: everything is answered here, so the component
;; imports nothing. It needs no memory of its own: Go takes itself for the only one that grows it.
;;
;; The answers are the same in every run: one argument, one variable, a clock that counts, random
;; bytes from a fixed seed, no files but three. Standard input is a text that the guest sets.
(module
  (import "env" "memory" (memory 0))

  ;; Nanoseconds, counted from a time at which certificates and dates are plausible.
  (global $now (mut i64) (i64.const 1600000000000000000))
  (global $random (mut i64) (i64.const 0x9e3779b97f4a7c15))
  (global $stdin (mut i32) (i32.const 0))
  (global $stdin_length (mut i32) (i32.const 0))

  ;; Of the guest's own: makes a text in its memory the standard input.
  (func (export "stdin_set") (param $text i32) (param $length i32)
    (global.set $stdin (local.get $text))
    (global.set $stdin_length (local.get $length)))

  ;; === Arguments: `istio`. Some packages read the name of the program when they start.
  (func (export "args_sizes_get") (param $count i32) (param $size i32) (result i32)
    (i32.store (local.get $count) (i32.const 1))
    (i32.store (local.get $size) (i32.const 6))
    (i32.const 0))
  (func (export "args_get") (param $pointers i32) (param $text i32) (result i32)
    (i32.store (local.get $pointers) (local.get $text))
    (i32.store align=1 (local.get $text) (i32.const 0x69747369)) ;; itsi, the last byte first
    (i32.store16 offset=4 align=1 (local.get $text) (i32.const 0x6f)) ;; o, 0
    (i32.const 0))

  ;; === Environment: `GOGC=200`. An instance lives for one call, so garbage matters less than the
  ;; time to collect it: half the collections take 5 MiB more, a quarter (400) would take 30 MiB.
  (func (export "environ_sizes_get") (param $count i32) (param $size i32) (result i32)
    (i32.store (local.get $count) (i32.const 1))
    (i32.store (local.get $size) (i32.const 9))
    (i32.const 0))
  (func (export "environ_get") (param $pointers i32) (param $text i32) (result i32)
    (i32.store (local.get $pointers) (local.get $text))
    (i64.store align=1 (local.get $text) (i64.const 0x3030323d43474f47)) ;; the last byte first
    (i32.store8 offset=8 (local.get $text) (i32.const 0))
    (i32.const 0))

  ;; === Time and chance
  (func (export "clock_time_get") (param $clock i32) (param $precision i64) (param $time i32)
    (result i32)
    (global.set $now (i64.add (global.get $now) (i64.const 1000)))
    (i64.store (local.get $time) (global.get $now))
    (i32.const 0))
  ;; xorshift, a byte at a time.
  (func (export "random_get") (param $bytes i32) (param $length i32) (result i32)
    (local $x i64)
    (local.set $x (global.get $random))
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $length)))
        (local.set $x (i64.xor (local.get $x) (i64.shl (local.get $x) (i64.const 13))))
        (local.set $x (i64.xor (local.get $x) (i64.shr_u (local.get $x) (i64.const 7))))
        (local.set $x (i64.xor (local.get $x) (i64.shl (local.get $x) (i64.const 17))))
        (i64.store8 (local.get $bytes) (local.get $x))
        (local.set $bytes (i32.add (local.get $bytes) (i32.const 1)))
        (local.set $length (i32.sub (local.get $length) (i32.const 1)))
        (br $next)))
    (global.set $random (local.get $x))
    (i32.const 0))
  ;; The first subscription (48 bytes) has happened, at once: Go's scheduler gives up without an
  ;; event. If that is a wait, the clock goes on by its length.
  (func (export "poll_oneoff")
    (param $subscriptions i32) (param $events i32) (param $length i32) (param $count i32)
    (result i32)
    (if (i32.eqz (i32.load8_u offset=8 (local.get $subscriptions)))
      (then
        (global.set $now
          (i64.add (global.get $now) (i64.load offset=24 (local.get $subscriptions))))))
    (memory.fill (local.get $events) (i32.const 0) (i32.const 32))
    (i64.store (local.get $events) (i64.load (local.get $subscriptions)))
    (i32.store8 offset=10 (local.get $events) (i32.load8_u offset=8 (local.get $subscriptions)))
    (i32.store (local.get $count) (i32.const 1))
    (i32.const 0))
  (func (export "sched_yield") (result i32)
    (i32.const 0))
  (func (export "proc_exit") (param i32)
    unreachable)

  ;; === Standard input and output. Go hands over one vector of bytes (pointer, length).
  (func (export "fd_read")
    (param $file i32) (param $vectors i32) (param $length i32) (param $read i32) (result i32)
    (local $bytes i32)
    (if (local.get $file) (then (return (i32.const 8))))
    (local.set $bytes (i32.load offset=4 (local.get $vectors)))
    (if (i32.gt_u (local.get $bytes) (global.get $stdin_length))
      (then (local.set $bytes (global.get $stdin_length))))
    (memory.copy (i32.load (local.get $vectors)) (global.get $stdin) (local.get $bytes))
    (global.set $stdin (i32.add (global.get $stdin) (local.get $bytes)))
    (global.set $stdin_length (i32.sub (global.get $stdin_length) (local.get $bytes)))
    (i32.store (local.get $read) (local.get $bytes))
    (i32.const 0))
  ;; Dropped: upstream logs there.
  (func (export "fd_write")
    (param $file i32) (param $vectors i32) (param $length i32) (param $written i32) (result i32)
    (i32.store (local.get $written) (i32.load offset=4 (local.get $vectors)))
    (i32.const 0))

  ;; === All else: errno 8, no such file descriptor. So there are no files and no sockets.
  (func (export "clock_res_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_close") (param i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_set_flags") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_filestat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_filestat_set_size") (param i32 i64) (result i32) (i32.const 8))
  (func (export "fd_pread") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_dir_name") (param i32 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_pwrite") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_readdir") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_renumber") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_sync") (param i32) (result i32) (i32.const 8))
  (func (export "path_create_directory") (param i32 i32 i32) (result i32) (i32.const 8))
  (func (export "path_filestat_get") (param i32 i32 i32 i32 i32) (result i32) (i32.const 8))
  (func (export "path_filestat_set_times") (param i32 i32 i32 i32 i64 i64 i32) (result i32)
    (i32.const 8))
  (func (export "path_link") (param i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 8))
  (func (export "path_open") (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32) (i32.const 8))
  (func (export "path_readlink") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 8))
  (func (export "path_remove_directory") (param i32 i32 i32) (result i32) (i32.const 8))
  (func (export "path_rename") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 8))
  (func (export "path_symlink") (param i32 i32 i32 i32 i32) (result i32) (i32.const 8))
  (func (export "path_unlink_file") (param i32 i32 i32) (result i32) (i32.const 8))
  (func (export "sock_accept") (param i32 i32 i32) (result i32) (i32.const 8))
  (func (export "sock_shutdown") (param i32 i32) (result i32) (i32.const 8)))

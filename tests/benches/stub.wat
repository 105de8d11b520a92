;; The core of a component of `wit/` that does nothing: an empty step, no deadline.
(module
  (import "[export]incumbent:election/elector@0.1.0" "[resource-new]elector"
    (func $new (param i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    i32.const 1024)
  (func (export "incumbent:election/elector@0.1.0#[static]elector.open")
    (param i64 i64 i64 i64 i64 i64) (result i32)
    i32.const 4
    i32.const 0
    call $new
    i32.store
    i32.const 0)
  ;; Nothing is ever written at 64: a step of zeros.
  (func (export "incumbent:election/elector@0.1.0#[method]elector.handle")
    (param i32 i64 i32 i32) (result i32)
    i32.const 64))

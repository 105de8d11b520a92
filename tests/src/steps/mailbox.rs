//! From values of generated types to JSON: a component is given them as what they are,
//! and hands them out again to whom knows no types. What is in its memory is the same.

use incumbent::types::{Config, Event};
use serde_json::Value;
use wasmtime::component::{Component, ComponentType, Instance, Linker, Lower, Val};
use wasmtime::{Engine, Store};

use super::values::encode;
use crate::text_component::{REALLOC, of_world};

const WIT: &str = "package incumbent:test;
    interface mailbox {
        use incumbent:election/types@0.1.0.{config, event};
        put-configs: func(configs: list<config>);
        configs: func() -> list<config>;
        put-events: func(events: list<event>);
        events: func() -> list<event>;
    }
    world test {
        export incumbent:election/types@0.1.0;
        export mailbox;
    }";

/// Holds one list.
pub struct Mailbox {
    store: Store<()>,
    instance: Instance,
}

impl Mailbox {
    pub fn open() -> Mailbox {
        let put = "(param i32 i32)
            (i32.store (i32.const 0) (local.get 0)) (i32.store (i32.const 4) (local.get 1))";
        let module = format!(
            r#"(module
            (memory (export "memory") 64)
            (global $free (mut i32) (i32.const 8))
            {REALLOC}
            (func (export "incumbent:test/mailbox#put-configs") {put})
            (func (export "incumbent:test/mailbox#configs") (result i32) i32.const 0)
            (func (export "incumbent:test/mailbox#put-events") {put})
            (func (export "incumbent:test/mailbox#events") (result i32) i32.const 0))"#
        );
        let engine = Engine::default();
        let component = Component::new(&engine, of_world(&module, WIT)).expect("loads");
        let mut store = Store::new(&engine, ());
        let instance = Linker::new(&engine).instantiate(&mut store, &component).expect("starts");
        Mailbox { store, instance }
    }

    /// A configuration as JSON.
    pub fn config(&mut self, config: Config) -> Value {
        self.carried("configs", &[config])[0].take()
    }

    /// Events as JSON.
    pub fn events(&mut self, events: &[Event]) -> Value {
        self.carried("events", events)
    }

    fn carried<T: ComponentType + Lower>(&mut self, name: &str, values: &[T]) -> Value {
        let mailbox =
            self.instance.get_export_index(&mut self.store, None, "incumbent:test/mailbox");
        let mut function = |name: &str| {
            let index = self.instance.get_export_index(&mut self.store, mailbox.as_ref(), name);
            let function = index.and_then(|index| self.instance.get_func(&mut self.store, index));
            function.expect("is exported")
        };
        let (put, taken) = (function(&format!("put-{name}")), function(name));
        let put = put.typed::<(&[T],), ()>(&self.store).expect("fits");
        put.call(&mut self.store, (values,)).expect("holds");
        let mut list = [Val::Bool(false)];
        taken.call(&mut self.store, &[], &mut list).expect("hands out");
        let kind = taken.ty(&self.store).results().next().expect("returns a list");
        encode(&kind, &list[0])
    }
}

//! The elector as a host sees it that knows nothing of its types but what the component
//! says of itself.

use std::collections::BTreeSet;

use serde_json::Value;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Func, Instance, InstancePre, Linker, ResourceAny, Type, Val};
use wasmtime::{Engine, Store};

use super::values::{cases, decode, encode};

/// The component that the library carries, spoken to in JSON.
pub struct Dynamic {
    /// `incumbent:election/elector@0.1.0`.
    interface: String,
    component: InstancePre<()>,
    opened: Option<Opened>,
}

struct Opened {
    store: Store<()>,
    handle: Func,
    elector: ResourceAny,
}

impl Dynamic {
    /// Loads it.
    pub fn embedded() -> Result<Dynamic, String> {
        Dynamic::load().map_err(|error| format!("{error:#}"))
    }

    fn load() -> wasmtime::Result<Dynamic> {
        let engine = Engine::default();
        let component = Component::new(&engine, incumbent::Component::EMBEDDED)?;
        let kind = component.component_type();
        let mut exports = kind.exports(&engine).filter(|(name, export)| {
            matches!(export.ty, ComponentItem::ComponentInstance(_)) && name.contains("/elector@")
        });
        let (interface, _) = exports.next().ok_or(wasmtime::Error::msg("it exports no elector"))?;
        let interface = interface.to_owned();
        let component = Linker::new(&engine).instantiate_pre(&component)?;
        Ok(Dynamic { interface, component, opened: None })
    }

    /// The package of its types: `incumbent:election@0.1.0`.
    pub fn package(&self) -> String {
        self.interface.replace("/elector", "")
    }

    /// The names of all cases that its types have.
    pub fn cases(&self) -> BTreeSet<String> {
        let (engine, mut found) = (self.component.engine(), BTreeSet::new());
        for (_, export) in self.component.component().component_type().exports(engine) {
            let ComponentItem::ComponentInstance(interface) = export.ty else { continue };
            for (_, export) in interface.exports(engine) {
                let ComponentItem::ComponentFunc(function) = export.ty else { continue };
                function.params().for_each(|(_, kind)| cases(&kind, &mut found));
                function.results().for_each(|kind| cases(&kind, &mut found));
            }
        }
        found
    }

    /// Opens an elector in place of the one before. Some: it was refused, and why. Refuses
    /// a configuration or a mark that is none.
    pub fn open(&mut self, config: &Value, now: &Value) -> Result<Option<Value>, String> {
        let mut store = Store::new(self.component.engine(), ());
        let instance = self.component.instantiate(&mut store).map_err(broken)?;
        let open = self.function(&mut store, &instance, "[static]elector.open")?;
        let handle = self.function(&mut store, &instance, "[method]elector.handle")?;
        let parameters = parameters(&store, open);
        let arguments = [decode(&parameters[0], config)?, decode(&parameters[1], now)?];
        let mut opened = [Val::Bool(false)];
        open.call(&mut store, &arguments, &mut opened).map_err(broken)?;
        let (opened, refused) = match opened {
            [Val::Result(Ok(Some(elector)))] => match *elector {
                Val::Resource(elector) => (Some(Opened { store, handle, elector }), None),
                other => return Err(format!("{other:?} is no elector")),
            },
            [Val::Result(Err(Some(error)))] => {
                let kinds = open.ty(&store);
                let kind = kinds.results().next().and_then(|kind| kind.unwrap_result().err());
                (None, kind.map(|kind| encode(&kind, &error)))
            }
            other => return Err(format!("{other:?} came of opening")),
        };
        self.opened = opened;
        Ok(refused)
    }

    /// Gives it events, and returns its step. Fails for events or a mark that are none,
    /// where there is no elector, and in a trap.
    pub fn handle(&mut self, now: &Value, events: &Value) -> Result<Value, String> {
        let Opened { store, handle, elector } =
            self.opened.as_mut().ok_or("no elector was opened")?;
        let parameters = parameters(store, *handle);
        let (now, events) = (decode(&parameters[1], now)?, decode(&parameters[2], events)?);
        let mut step = [Val::Bool(false)];
        let arguments = [Val::Resource(*elector), now, events];
        handle.call(&mut *store, &arguments, &mut step).map_err(broken)?;
        let kind = handle.ty(&*store).results().next().ok_or("it returns nothing")?;
        Ok(encode(&kind, &step[0]))
    }

    fn function(
        &self,
        store: &mut Store<()>,
        instance: &Instance,
        name: &str,
    ) -> Result<Func, String> {
        let interface = instance.get_export_index(&mut *store, None, &self.interface);
        let function = instance.get_export_index(&mut *store, interface.as_ref(), name);
        function
            .and_then(|function| instance.get_func(store, function))
            .ok_or_else(|| format!("{} has no {name}", self.interface))
    }
}

fn parameters(store: &Store<()>, function: Func) -> Vec<Type> {
    function.ty(store).params().map(|(_, kind)| kind).collect()
}

fn broken(error: wasmtime::Error) -> String {
    format!("the elector broke off: {error:#}")
}

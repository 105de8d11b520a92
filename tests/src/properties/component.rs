//! Whatever bytes are given as an elector: they are refused, or work within their limits.

use arbitrary::{Result, Unstructured};
use incumbent::types::{Config, Event};
use incumbent::{Component, Elector};

/// Loads what the bytes say: the library's own elector with some changes, or the bytes.
/// Panics if the library does.
pub fn check(bytes: &[u8]) {
    let mut bytes = Unstructured::new(bytes);
    let Ok(component) = component(&mut bytes) else { return };
    let Ok(component) = Component::from_bytes(&component) else { return };
    let config = Config {
        lease_ttl: 10_000_000_000,
        safety_margin: 0,
        request_timeout: 5_000_000_000,
        seed: (1, 2),
    };
    let Ok(mut elector) = Elector::open(&component, config, 0) else { return };
    for now in 1..4 {
        if let Ok(step) = elector.handle(now, &[Event::Wake]) {
            assert!(step.deadline.is_none_or(|deadline| deadline > now), "it would spin");
        }
    }
}

fn component(bytes: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    if bytes.ratio(1, 8)? {
        return Ok(bytes.bytes(bytes.len())?.to_vec());
    }
    let mut component = Component::EMBEDDED.to_vec();
    for _ in 0..bytes.int_in_range(0..=3)? {
        let at = bytes.choose_index(component.len())?;
        match bytes.int_in_range(0..=7)? {
            0 => component.truncate(at.max(1)),
            1 => drop(component.remove(at)),
            2 => component.insert(at, bytes.arbitrary()?),
            _ => component[at] = bytes.arbitrary()?,
        }
    }
    Ok(component)
}

//! Values of any WIT type as JSON, both ways. The type decides: an empty list of bytes is
//! an empty string, any other an empty array.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use wasmtime::component::{Type, Val};

/// A value as JSON. Panics if there is no JSON for its type: the elector has no floats,
/// characters, flags or maps.
pub fn encode(kind: &Type, value: &Val) -> Value {
    match (kind, value) {
        (_, Val::Bool(value)) => json!(value),
        (_, Val::U32(number)) => json!(number),
        (_, Val::S32(number)) => json!(number),
        // JavaScript would read them as floats, and lose digits.
        (_, Val::U64(number)) => json!(number.to_string()),
        (_, Val::S64(number)) => json!(number.to_string()),
        (_, Val::String(text) | Val::Enum(text)) => json!(text),
        (Type::List(list), Val::List(items)) if list.ty() == Type::U8 => json!(hex(items)),
        (Type::List(list), Val::List(items)) => {
            items.iter().map(|item| encode(&list.ty(), item)).collect()
        }
        (Type::Tuple(tuple), Val::Tuple(items)) => {
            tuple.types().zip(items).map(|(kind, item)| encode(&kind, item)).collect()
        }
        (Type::Record(record), Val::Record(fields)) => {
            let named = record.fields().zip(fields);
            named.map(|(field, (name, value))| (name.clone(), encode(&field.ty, value))).collect()
        }
        (Type::Option(option), Val::Option(value)) => {
            value.as_ref().map_or(Value::Null, |value| encode(&option.ty(), value))
        }
        (Type::Variant(variant), Val::Variant(tag, value)) => {
            let case = variant.cases().find(|case| case.name == tag);
            tagged(tag, case.and_then(|case| case.ty), value.as_deref())
        }
        (Type::Result(result), Val::Result(Ok(value))) => {
            tagged("ok", result.ok(), value.as_deref())
        }
        (Type::Result(result), Val::Result(Err(value))) => {
            tagged("err", result.err(), value.as_deref())
        }
        (kind, value) => panic!("there is no JSON for {value:?}, a {kind:?}"),
    }
}

fn tagged(tag: &str, kind: Option<Type>, value: Option<&Val>) -> Value {
    match kind.zip(value) {
        Some((kind, value)) => json!({ "tag": tag, "val": encode(&kind, value) }),
        None => json!({ "tag": tag }),
    }
}

/// The value of this type that the JSON stands for. Refuses JSON that stands for none of
/// this type.
pub fn decode(kind: &Type, json: &Value) -> Result<Val, String> {
    match kind {
        Type::Bool => json.as_bool().map(Val::Bool),
        Type::U32 => json.as_u64().and_then(|number| number.try_into().ok()).map(Val::U32),
        Type::S32 => json.as_i64().and_then(|number| number.try_into().ok()).map(Val::S32),
        Type::U64 => json.as_str().and_then(|digits| digits.parse().ok()).map(Val::U64),
        Type::S64 => json.as_str().and_then(|digits| digits.parse().ok()).map(Val::S64),
        Type::String => json.as_str().map(|text| Val::String(text.into())),
        Type::Enum(_) => json.as_str().map(|name| Val::Enum(name.into())),
        Type::List(list) if list.ty() == Type::U8 => json.as_str().and_then(bytes),
        Type::List(list) => match json.as_array() {
            Some(items) => Some(Val::List(all(items.iter().map(|item| (list.ty(), item)))?)),
            None => None,
        },
        Type::Tuple(tuple) => match json.as_array() {
            Some(items) if items.len() == tuple.types().len() => {
                Some(Val::Tuple(all(tuple.types().zip(items))?))
            }
            _ => None,
        },
        Type::Record(record) => match json.as_object() {
            Some(fields) if fields.len() == record.fields().len() => {
                let field = |name: &str| fields.get(name).ok_or(format!("no {name} in {json}"));
                let fields = record.fields().map(|wanted| {
                    let value = decode(&wanted.ty, field(wanted.name)?)?;
                    Ok((wanted.name.to_owned(), value))
                });
                Some(Val::Record(fields.collect::<Result<_, String>>()?))
            }
            _ => None,
        },
        Type::Option(_) if json.is_null() => Some(Val::Option(None)),
        Type::Option(option) => Some(Val::Option(Some(decode(&option.ty(), json)?.into()))),
        Type::Variant(variant) => match variant.cases().find(|case| json["tag"] == case.name) {
            Some(case) => Some(Val::Variant(case.name.into(), payload(case.ty, json)?)),
            None => None,
        },
        Type::Result(result) => match json["tag"].as_str() {
            Some("ok") => Some(Val::Result(Ok(payload(result.ok(), json)?))),
            Some("err") => Some(Val::Result(Err(payload(result.err(), json)?))),
            _ => None,
        },
        _ => None,
    }
    .ok_or_else(|| format!("{json} is no {kind:?}"))
}

fn all<'a>(items: impl Iterator<Item = (Type, &'a Value)>) -> Result<Vec<Val>, String> {
    items.map(|(kind, item)| decode(&kind, item)).collect()
}

fn payload(kind: Option<Type>, json: &Value) -> Result<Option<Box<Val>>, String> {
    match (kind, json.get("val")) {
        (Some(kind), Some(value)) => Ok(Some(decode(&kind, value)?.into())),
        (None, None) => Ok(None),
        _ => Err(format!("{json} has the wrong `val`")),
    }
}

/// The names of all cases that a value of this type may show.
pub fn cases(kind: &Type, found: &mut BTreeSet<String>) {
    match kind {
        Type::List(list) => cases(&list.ty(), found),
        Type::Option(option) => cases(&option.ty(), found),
        Type::Tuple(tuple) => tuple.types().for_each(|kind| cases(&kind, found)),
        Type::Record(record) => record.fields().for_each(|field| cases(&field.ty, found)),
        Type::Result(result) => {
            result.ok().into_iter().chain(result.err()).for_each(|kind| cases(&kind, found));
        }
        Type::Enum(names) => found.extend(names.names().map(Into::into)),
        Type::Variant(variant) => variant.cases().for_each(|case| {
            found.insert(case.name.into());
            case.ty.into_iter().for_each(|kind| cases(&kind, found));
        }),
        _ => {}
    }
}

fn hex(items: &[Val]) -> String {
    let digits = items.iter().map(|item| match item {
        Val::U8(byte) => format!("{byte:02x}"),
        _ => panic!("{item:?} is no byte"),
    });
    digits.collect()
}

fn bytes(text: &str) -> Option<Val> {
    let pairs = text.as_bytes().chunks(2).map(|pair| {
        let pair = str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok().map(Val::U8)
    });
    pairs.collect::<Option<_>>().map(Val::List)
}

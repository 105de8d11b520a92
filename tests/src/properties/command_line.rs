//! Whatever is written on the command line and in the environment: the program does not
//! panic, ends soon, and says in one sentence what it does not take.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use arbitrary::{Result, Unstructured};

// What is chosen from stands between bars.

const SOUND: &str = "\
    campaign e|run e -- true|observe e|watch e|leader e|candidates e|put k v --fence e:5|get k\
    |depose e:5|help";
const FLAGS: &str = "\
    --cacert|--cert|--key|--user|--password-file|--dial-timeout|--command-timeout|--contest|--id\
    |--output|-o|--verbose|-v|-vv|--value|--ttl|--margin|--isolate|--once|--stop-timeout\
    |--restart-delay|--wait|--fence|--consistency|--help|--version|--|-";
const VALUES: &str = "\
    |e|e:5|e:0|e:99999999999999999999|:|0|0s|1ns|2s|10s|10|-3s|9000000000s|9000000001s\
    |18446744073709551615s|18446744073709551616s|9223372036854775807s|584years\
    |1s 18446744073709551615s|queue|race|json|l|true|false|/nowhere/x|/proc/version|a\nb\
    |\u{202e}x";

/// Nobody is there, so that all that is taken ends with it.
const NOWHERE: &str = "etcd://127.0.0.1:1";

/// Starts the program as the bytes say. Panics if it does not end as it should.
pub fn check(bytes: &[u8], program: &Path) {
    let mut bytes = Unstructured::new(bytes);
    let Ok((arguments, variables)) = invocation(&mut bytes) else { return };
    let mut command = Command::new(program);
    command.args(&arguments).env_clear().current_dir("/proc").stdin(Stdio::null());
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command.env("INCUMBENT_STORE", NOWHERE);
    let output = command.output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    // A warning of a file that every user can read may precede the rest.
    let told = said.lines().filter(|line| !line.contains(" can be read by every user "));
    let told = told.collect::<Vec<_>>().join("\n");
    let context = format!("{arguments:?} {variables:?}: {:?} {told}", output.status);
    assert!(!told.contains("panicked"), "{context}");
    assert_eq!(output.status.signal(), None, "{context}");
    let logs = arguments.iter().any(|argument| argument.as_bytes().starts_with(b"-v"))
        || arguments.iter().any(|argument| argument == "--verbose")
        || variables.iter().any(|(name, _)| name == "INCUMBENT_VERBOSE");
    match output.status.code() {
        Some(0) => {}
        Some(2) => {
            assert!(output.stdout.is_empty(), "{context}");
            let sentence = told.lines().last().unwrap_or_default();
            assert!(sentence.starts_with("incumbent: "), "{context}");
            assert!(logs || told.lines().count() == 1, "{context}");
        }
        // No store, or no such command.
        Some(4 | 126 | 127) => {
            assert!(logs || told.lines().count() == 1, "{context}");
        }
        _ => panic!("{context}"),
    }
}

type Invocation = (Vec<OsString>, Vec<(String, OsString)>);

fn invocation(bytes: &mut Unstructured<'_>) -> Result<Invocation> {
    // Mostly what would be taken but for a flag or two, or the checks would not be reached.
    let sound = one_of(bytes, SOUND)?.split(' ');
    let mut arguments: Vec<OsString> = sound.map(Into::into).collect();
    for _ in 0..bytes.int_in_range(0..=3)? {
        let flag = OsString::from(one_of(bytes, FLAGS)?);
        let value = value(bytes)?;
        match bytes.int_in_range(0..=15)? {
            0..=9 => drop(arguments.splice(1..1, [flag, value])),
            10..=12 => arguments.insert(1, [flag, value].join(OsStr::new("="))),
            13 => arguments.insert(1, flag),
            14 => arguments.push(value),
            _ => {
                let index = bytes.choose_index(arguments.len())?;
                arguments[index] = value;
            }
        }
    }
    let mut variables = Vec::new();
    for _ in 0..bytes.int_in_range(0..=3)? {
        let name = match bytes.int_in_range(0..=15)? {
            0 => "EPOCH".into(),
            1 => "ELECTION".into(),
            _ => one_of(bytes, FLAGS)?.trim_start_matches('-').to_uppercase().replace('-', "_"),
        };
        let name = format!("INCUMBENT_{name}");
        variables.push((name, value(bytes)?));
    }
    // It is to ask nobody, and to write nothing.
    let reaches = |argument: &OsString| {
        let text = argument.to_string_lossy();
        text.contains("store") || text.contains("events")
    };
    arguments.retain(|argument| !reaches(argument));
    Ok((arguments, variables))
}

fn value(bytes: &mut Unstructured<'_>) -> Result<OsString> {
    Ok(match bytes.int_in_range(0..=7)? {
        0 => {
            let any: Vec<u8> = bytes.arbitrary()?;
            OsString::from_vec(any.into_iter().filter(|byte| *byte != 0).collect())
        }
        1 => OsString::from("é".repeat(bytes.int_in_range(0..=2_100)?)),
        _ => OsStr::new(one_of(bytes, VALUES)?).into(),
    })
}

fn one_of(bytes: &mut Unstructured<'_>, all: &'static str) -> Result<&'static str> {
    let all: Vec<_> = all.split('|').collect();
    bytes.choose(&all).copied()
}

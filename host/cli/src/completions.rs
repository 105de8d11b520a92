//! `incumbent completions`: prints what a shell needs to complete the command line. `incumbent man`
//! writes the manual pages, for packages.

use std::fs;

use clap_mangen::Man;

use super::args::{Cli, Completions, ManualPages};
use super::exit::{End, Status, bad_input};
use super::output::print;

pub fn completions(completions: &Completions) -> Result<Status, End> {
    let mut script = Vec::new();
    clap_complete::generate(completions.shell, &mut Cli::described(), "incumbent", &mut script);
    print(script.trim_ascii_end())
}

pub fn manual_pages(pages: &ManualPages) -> Result<Status, End> {
    let directory = pages.directory.display();
    let unwritable = |error| {
        bad_input(format!(
            "the manual pages cannot be written to {directory} ({error}): give a directory where you may write"
        ))
    };
    fs::create_dir_all(&pages.directory).map_err(unwritable)?;
    let mut program = Cli::described().disable_help_flag(true);
    program.build();
    write(&program, "incumbent", pages).map_err(unwritable)?;
    for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
        write(command, &format!("incumbent-{}", command.get_name()), pages).map_err(unwritable)?;
    }
    Ok(Status::Done)
}

fn write(command: &clap::Command, name: &str, pages: &ManualPages) -> std::io::Result<()> {
    let mut page = Vec::new();
    Man::new(command.clone()).title(name.to_uppercase()).render(&mut page)?;
    fs::write(pages.directory.join(format!("{name}.1")), page)
}

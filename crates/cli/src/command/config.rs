//! `paceline config show`.

use crate::args::Which;
use crate::failure::Failure;
use crate::settings::{Settings, files, variable_of};
use crate::show;
use serde_json::json;

pub fn show(which: &Which, json: bool) -> Result<(), Failure> {
    let settings = Settings::gather(which.flags())?;
    if json {
        let rows: Vec<_> = (settings.rows())
            .map(|(setting, value, source)| {
                json!({
                    "name": setting.name, "value": value, "source": source.to_string(), "default": setting.default,
                    "variable": variable_of(setting.name), "help": setting.help,
                })
            })
            .collect();
        let files: Vec<_> = files().iter().map(|file| file.display().to_string()).collect();
        show::json(&json!({"settings": rows, "files": files}));
        return Ok(());
    }
    let rows = settings.rows().map(|(setting, value, source)| {
        let value = if value.is_empty() { "-" } else { value };
        vec![setting.name.to_owned(), value.to_owned(), source.to_string(), setting.help.to_owned()]
    });
    show::table(&["setting", "value", "from", ""], rows.collect()).iter().for_each(|line| show::line(line));
    Ok(())
}

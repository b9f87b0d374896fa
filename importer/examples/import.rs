//! The library without the command line around it: `import INPUT TARGET PARTS [PARTITIONER]`, then `inspect`.

use rudder_importer::{Bars, ImportOptions, Input, Verify, import, inspect};
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [input, target, parts, partitioner @ ..] = arguments.as_slice() else {
        return Err("usage: import INPUT TARGET PARTS [PARTITIONER]".into());
    };
    let mut options = ImportOptions::new(input.parse::<Input>()?, target);
    options.parts = Some(parts.parse()?);
    if let [partitioner, ..] = partitioner {
        options.partitioner = partitioner.parse()?;
    }
    println!("{}", import(&options, &mut Bars::default())?);
    print!("{}", inspect(Path::new(target), Verify::Checksums, &mut Bars::default())?);
    Ok(())
}

//! Writes the named files of every corpus, in the current formats. Inputs that fuzzing found stay
//! unchanged.

use std::fs;

use longhaul_proto::fuzzing::corpus_dir;

fn main() -> std::io::Result<()> {
    for target in longhaul_fuzz::all() {
        let folder = corpus_dir(target.name);
        fs::create_dir_all(&folder)?;
        for (name, bytes) in (target.seeds)() {
            fs::write(folder.join(name), bytes)?;
        }
        println!("{}: {} files", target.name, fs::read_dir(&folder)?.count());
    }
    Ok(())
}

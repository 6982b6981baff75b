//! The store's tables, as files that each release may add to and never changes.

use std::sync::LazyLock;

use sqlx::migrate::Migrator;

/// All files of the folder `migrations`.
pub(super) static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    longhaul_api::migrations!["0001_jobs.sql", "0003_parts.sql", "0004_notices.sql",]
});

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[tokio::test]
    async fn every_file_is_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
        let files = Migrator::new(folder).await.unwrap();
        let listed = |migrator: &Migrator| {
            let migrations = migrator.iter().map(|migration| {
                let (version, description) = (migration.version, migration.description.clone());
                (
                    version,
                    description,
                    migration.checksum.clone(),
                    migration.no_tx,
                )
            });
            migrations.collect::<Vec<_>>()
        };
        assert_eq!(listed(&MIGRATIONS), listed(&files));
    }
}

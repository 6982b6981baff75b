//! Macro that runs the same tests with SQLite and with PostgreSQL.

/// Runs each test, a function of a `Store`, with SQLite, and all of them with one PostgreSQL
/// server, as starting one takes a second.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                let dir = tempfile::tempdir().unwrap();
                // A path with characters that a URL could not have.
                let file = dir.path().join("store ?#%41.sqlite");
                super::$name(super::Store::sqlite(&file).await.unwrap()).await;
            })+
        }

        #[tokio::test]
        async fn the_same_holds_with_postgresql() {
            let server = crate::postgres::Postgres::start();
            $({
                println!("{}", stringify!($name));
                // PostgreSQL names have at most 63 bytes.
                let name = &stringify!($name)[..stringify!($name).len().min(60)];
                server.create_database(name);
                $name(Store::postgres(&server.url_of(name)).await.unwrap()).await;
            })+
        }
    };
}

"""The warehouse's files through pyarrow.fs: reading, writing and inspecting them."""
